"""What the kernel holds compilers and devices' processes by: tried from within, by real deeds."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.confinement.profile import Profile, available
from services.evaluator.devices import device_process, held
from services.evaluator.isolation.child import DeviceDoesNotStart
from services.evaluator.isolation.confined import Confined
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.isolation.spares import NO_SPARES
from services.evaluator.settings import EvaluatorSettings
from sparsesmith_proto.kernel import DeviceDescription
from tests.evaluator.deeds import DONE, TryingFactory, hostile, of_programs, usual
from tests.evaluator.misbehaving_device import MisbehavingDevice, MisbehavingFactory, PreloadedFactory
from tests.kernels.corpus import FOLDER, read_program

ROOT = Path(__file__).resolve().parents[2]
LIMITS = StageLimits(start_s=120)

needs_all = pytest.mark.skipif(not available().is_whole, reason=f"this kernel: {available().describe()}")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    secret = tmp_path / "other" / "secret"
    secret.write_text("a password")
    yield tmp_path
    assert secret.read_text() == "a password"
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["secret"]


def tried(folder: Path, mode: str) -> dict[str, str]:
    command = [sys.executable, "-m", "tests.evaluator.deeds", str(folder), mode]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def done(results: dict[str, str]) -> set[str]:
    return {name for name, result in results.items() if result == DONE}


NAMES_A_THREAD = """
import threading
from pathlib import Path
from services.evaluator.confinement.profile import Profile, confine

confine(Profile(gpu={gpu}))

def name(path):
    try:
        with open(path, "w") as file:
            file.write("named")
        return Path(path).read_text().strip()
    except OSError as error:
        return type(error).__name__

def work():
    print(name(f"/proc/self/task/{{threading.get_native_id()}}/comm"))
    print(name("/proc/self/oom_score_adj"), name("/proc/sys/kernel/core_pattern"))

thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


@needs_all
@pytest.mark.parametrize(("gpu", "thread"), [(True, "named"), (False, "PermissionError")])
def test_cuda_s_driver_may_name_its_threads_and_write_nothing_else_of_the_kernel_s(gpu: bool, thread: str) -> None:
    command = [sys.executable, "-c", NAMES_A_THREAD.format(gpu=gpu)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == [thread, "PermissionError", "PermissionError"]


@needs_all
def test_a_confined_process_does_what_it_is_for_and_nothing_else(folder: Path) -> None:
    results = tried(folder, "no_programs")
    assert done(results) == set(usual(folder)), results
    assert results.keys() == {*usual(folder), *hostile(folder), *of_programs(), "socket of an earlier thread"}
    assert {results[name] for name in ("socket", "ptrace", "program", "fork", "io_uring")} == {"EPERM"}
    assert {results[name] for name in ("write", "read", "overwrite", "remove")} == {"EACCES"}


@needs_all
def test_a_process_that_may_run_a_program_runs_no_other(folder: Path) -> None:
    results = tried(folder, "may_run")
    assert done(results) == {*usual(folder), "the program"}, results


@needs_all
def test_a_process_with_a_gpu_listens_on_a_local_socket_and_reaches_nobody(folder: Path) -> None:
    results = tried(folder, "gpu")
    assert done(results) == {*usual(folder), "unix socket", "listen"}, results
    assert {results[name] for name in ("accept", "connect", "datagrams", "socket")} == {"EPERM"}


@needs_all
@pytest.mark.parametrize("is_preloaded", [False, True], ids=["spawned", "forked"])
def test_a_device_s_process_is_confined_before_the_device_is_made(folder: Path, is_preloaded: bool) -> None:
    factory = Preloaded(folder) if is_preloaded else TryingFactory(folder)
    process = DeviceProcess(Confined(factory, Profile(write=(folder / "own",))), LIMITS)
    with closing(process), pytest.raises(DeviceDoesNotStart) as told:
        process.start()
    text = str(told.value)
    results = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert done(results) == set(usual(folder)), results


@dataclass(frozen=True)
class Preloaded(TryingFactory):
    """Its process is forked from one that has imported what it needs."""

    preloaded = PreloadedFactory.preloaded


@dataclass(frozen=True)
class Networked(MisbehavingFactory):
    """A device that needs what no confined process has."""

    def __call__(self, known: DeviceDescription | None = None) -> MisbehavingDevice:
        import socket

        socket.socket(socket.AF_INET).close()
        return super().__call__(known)


@needs_all
def test_a_device_that_does_not_work_so_runs_without_and_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with closing(held(Networked(), Profile(), LIMITS, NO_SPARES, "auto")) as process:
        assert not process.is_confined
        assert process.start() is not None
    assert "runs without confinement" in caplog.text
    with closing(held(Networked(), Profile(), LIMITS, NO_SPARES, "on")) as process, pytest.raises(DeviceDoesNotStart):
        process.start()
    with closing(held(MisbehavingFactory(), Profile(), LIMITS, NO_SPARES, "off")) as process:
        assert not process.is_confined


@dataclass(frozen=True)
class EndedOnce(MisbehavingFactory):
    """A device whose first process is told to end while it starts."""

    mark: Path = Path()

    def __call__(self, known: DeviceDescription | None = None) -> MisbehavingDevice:
        if not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return super().__call__(known)


@needs_all
def test_a_process_that_ends_by_chance_does_not_cost_a_device_its_confinement(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = folder / "own" / "mark"
    with closing(held(EndedOnce(mark=mark), Profile(write=(mark.parent,)), LIMITS, NO_SPARES, "auto")) as process:
        assert mark.exists()
        assert process.is_confined
        assert process.start() is not None
    assert "did not work confined" in caplog.text
    assert "runs without confinement" not in caplog.text


@needs_all
def test_the_interpreter_works_confined() -> None:
    with closing(device_process(EvaluatorSettings(device="interpreter"))) as process:
        assert process.is_confined


@needs_all
@pytest.mark.parametrize("confinement", ["on", "off"])
def test_a_compiler_reads_what_it_needs_and_no_secret(folder: Path, confinement: str) -> None:
    secret = folder / "other" / "secret"
    text = read_program(FOLDER / "good" / "csr_scalar.cu").text
    with Compiler(1, confinement=confinement) as compiler:  # type: ignore[arg-type]
        assert compiler.is_confined is (confinement == "on")
        assert isinstance(compiler.compile(text, "sm_90"), Compiled)
        stolen = compiler.compile(f'#include "{secret}"\n{text}', "sm_90")
    assert isinstance(stolen, CompileError)
    assert ("a password" in stolen.log or "password" in stolen.log) is (confinement == "off")


@needs_all
def test_a_compiler_s_process_has_no_cores_and_bounded_files() -> None:
    with Compiler(1, timeout_s=120) as compiler:
        worker = compiler._idle.get()
        pid = worker._process.pid
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)
        assert resource.prlimit(pid, resource.RLIMIT_FSIZE)[1] <= 1 << 30
        assert "Seccomp:\t2" in Path(f"/proc/{pid}/status").read_text()
        assert "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
        compiler._idle.put(worker)


def test_what_this_process_may_do_is_as_before() -> None:
    assert "Seccomp:\t0" in Path(f"/proc/{os.getpid()}/status").read_text() or not available().seccomp
