"""Two evaluators on one device: what each grades is what it grades alone, and neither touches the device meanwhile."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.evaluator.allowance import Allowance, Stopped, Waits, allowance_of
from services.evaluator.checking.correctness import Correct
from services.evaluator.device import BuildsFormats
from services.evaluator.devices import Gpu, Interpreter, turns_of
from services.evaluator.gpu_turn import NO_TURNS, GpuTurns
from services.evaluator.isolation.sandbox import DeviceProcess, SandboxedWorkbench
from services.evaluator.isolation.spares import NO_SPARES, SpareLimits
from services.evaluator.settings import EvaluatorSettings
from services.evaluator.stages import TURN, Stages
from sparsesmith.errors import InvalidOption
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Crashed, TimedOut
from tests.evaluator.misbehaving_device import MisbehavingFactory, measured
from tests.evaluator.test_evaluation import make_job
from tests.evaluator.test_sandbox import LIMITS, check, make_pattern, make_workload


@dataclass(frozen=True)
class Place:
    """Where sharers meet."""

    turns: GpuTurns

    @contextmanager
    def held(self) -> Iterator[None]:
        """By another evaluator."""
        with self.turns.taken(Waits()):
            yield


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(GpuTurns(tmp_path / "gpu-0"))


def sharer(place: Place, *, spares: SpareLimits = NO_SPARES) -> DeviceProcess:
    return DeviceProcess(MisbehavingFactory(), LIMITS, spares=spares, turns=place.turns)


def opened(process: DeviceProcess, **options: Any) -> SandboxedWorkbench:
    pattern = make_pattern()
    return process.open(Problem(make_workload(pattern), pattern), **options)


def test_kernels_fail_and_pass_as_they_do_alone(place: Place) -> None:
    with closing(sharer(place, spares=SpareLimits(most=2))) as process:
        workbench = opened(process)
        for behaviour, outcome in (("right", Correct), ("die", Crashed), ("hang", TimedOut), ("right", Correct)):
            assert isinstance(check(workbench, behaviour), outcome)
        assert workbench.time("kernel") == measured(5)


def test_a_call_waits_for_the_turn_of_another_and_its_limit_begins_then(place: Place) -> None:
    with closing(sharer(place)) as process:
        process.start()
        allowance = Allowance(budget_s=60, ends=time.monotonic() + 60)
        workbench = opened(process, allowance=allowance)
        workbench.draw()
        waited_before, left_before = allowance.waits.seconds, allowance.left_s
        with place.held():
            answers: list[object] = []
            asking = threading.Thread(target=lambda: answers.append(check(workbench, "right")))
            asking.start()
            asking.join(LIMITS.check_s + 0.5)
            assert asking.is_alive() and not answers
        asking.join(30)
        assert isinstance(answers[0], Correct)
        waited_s = allowance.waits.seconds - waited_before
        assert waited_s > LIMITS.check_s
        assert left_before - allowance.left_s < waited_s, "the budget stood still"


def test_a_job_that_was_stopped_while_it_stood_in_line_begins_no_stage(place: Place) -> None:
    stopped = threading.Event()
    with closing(sharer(place)) as process:
        process.start()
        workbench = opened(process, allowance=Allowance(60, time.monotonic() + 60, must_stop=stopped.is_set))
        workbench.draw()
        with place.held():
            raised: list[BaseException] = []

            def ask() -> None:
                try:
                    check(workbench, "right")
                except Stopped as error:
                    raised.append(error)

            asking = threading.Thread(target=ask)
            asking.start()
            time.sleep(0.3)
            stopped.set()
        asking.join(30)
        assert [str(error) for error in raised] == ["the job was stopped while check was under way"]
        assert process.is_running()


def test_the_process_of_a_kernel_that_hangs_is_gone_before_the_turn_is_handed_on(place: Place) -> None:
    with closing(sharer(place, spares=SpareLimits(most=2))) as process:
        workbench = opened(process)
        workbench.draw()
        pid = int(process._running_child().description.versions["pid"])
        assert Path(f"/proc/{pid}").exists()
        gone: list[bool] = []

        def look() -> None:
            time.sleep(0.2)  # The kernel hangs by now.
            with place.turns.taken(Waits()):
                gone.append(not is_running(pid))

        looking = threading.Thread(target=look)
        looking.start()
        assert isinstance(check(workbench, "hang"), TimedOut)
        looking.join(30)
        assert gone == [True]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_spares_start_in_turns(place: Place) -> None:
    with closing(sharer(place, spares=SpareLimits(least=1, most=1))) as process:
        process.start()
        assert process._spares is not None
        process._spares.wait(60)
        workbench = opened(process)
        workbench.draw()
        with place.held():
            process._spares.prepare(1, process._warmth)
            process._spares.take(None)
            process._spares.prepare(1, process._warmth)
            process._spares.wait(0.5)
            assert not process._spares._coming[0].future.done()
        process._spares.wait(60)
        assert process._spares._coming[0].future.done()


def test_waits_are_forgiven_as_far_as_the_sender_has_patience() -> None:
    job = make_job("right", budget_s=60)
    for patience_s, forgiven_s in ((None, 30), (90, 30), (65, 5), (60, 0)):
        allowance = allowance_of(job.model_copy(update={"patience_s": patience_s}), 0, bool)
        allowance.waits.add(30)
        assert allowance.left_s == pytest.approx(60 + forgiven_s, abs=1), "and 30 s of them are over"
        assert allowance.now() == pytest.approx(time.monotonic() - forgiven_s, abs=1)


def test_no_wait_is_of_a_turn_among_clients() -> None:
    allowance = Allowance(60, time.monotonic() + 60, turn_s=5, others_wait=lambda: True)
    started = allowance.worked() - 4
    assert not allowance.turn_is_over(started)
    assert allowance.turn_is_over(started - 2)
    allowance.waits.add(10)
    assert not allowance.turn_is_over(started - 2)


def test_waits_are_a_stage_and_no_part_of_another() -> None:
    waits = Waits()
    stages = Stages(waits)
    with stages.of("candidates"):
        time.sleep(0.02)
        waits.add(0.015)
    assert 4 <= stages.ms["candidates"] < 15 + 1000
    assert stages.ms[TURN] == 15
    alone = Stages()
    with alone.of("candidates"):
        pass
    assert alone.ms.keys() == {"candidates"}


def test_sharers_need_a_folder_to_meet_in(tmp_path: Path) -> None:
    assert turns_of(EvaluatorSettings(), Gpu("0", 0)) is NO_TURNS
    with pytest.raises(InvalidOption, match="2 sharers of a GPU take turns in a folder"):
        turns_of(EvaluatorSettings(sharers=2), Gpu("0", 0))
    for chosen, name in ((Gpu("GPU-abc", 3), "gpu-3"), (Interpreter(), "interpreter")):
        turns = turns_of(EvaluatorSettings(sharers=2, gpu_claims_dir=tmp_path / name), chosen)
        with turns.taken(Waits()):
            assert (tmp_path / name / f"{name}.turn").exists()


def test_formats_are_built_in_turns_where_the_gpu_builds_them(tmp_path: Path) -> None:
    for always in (False, True):
        builds: BuildsFormats = "always" if always else "at_once"
        settings, waits = EvaluatorSettings(sharers=2, gpu_claims_dir=tmp_path, builds_formats=builds), Waits()
        with turns_of(settings, Gpu("0", 0)).taken_for("build", waits):
            assert (waits.seconds > 0) == always
