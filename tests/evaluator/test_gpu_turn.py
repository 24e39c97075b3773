"""Turns on a shared device, between real processes: one at a time, nobody starves, and a killed holder lets go."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.evaluator.allowance import Waits
from services.evaluator.gpu_turn import MOST_SHARERS, NO_TURNS, GpuTurns
from services.evaluator.settings import EvaluatorSettings

MOST_AHEAD = 5
"""Turns; one or two but for a machine so busy that a process sleeps through several rounds."""

SHARER = """
import sys, time
from pathlib import Path
from services.evaluator.allowance import Waits
from services.evaluator.gpu_turn import GpuTurns
device, journal, name, uses, seconds = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], *map(float, sys.argv[4:])
turns, waits = GpuTurns(device), Waits()
with journal.open("a", buffering=1) as file:
    print("here", flush=True)
    input()
    for _ in range(int(uses)):
        with turns.taken(waits):
            file.write(f"{name} begins\\n")
            time.sleep(seconds)
            file.write(f"{name} ends\\n")
print(waits.seconds)
"""
"""Uses the device so many times for so long, one right after the other."""


def sharer(folder: Path, name: str, *, uses: int, seconds: float) -> "subprocess.Popen[str]":
    words = [str(folder / "gpu-0"), str(folder / "journal"), name, str(uses), str(seconds)]
    process = subprocess.Popen(
        [sys.executable, "-c", SHARER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    return process


def begin(processes: Sequence["subprocess.Popen[str]"]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def journal(folder: Path) -> list[str]:
    return (folder / "journal").read_text(encoding="utf-8").splitlines()


def wait_for(folder: Path, line: str) -> None:
    ends = time.monotonic() + 30
    while line not in journal(folder):
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_of_four_sharers_one_uses_the_device_at_a_time_and_each_as_often_as_the_others(tmp_path: Path) -> None:
    names, uses = "abcd", 30
    processes = [sharer(tmp_path, name, uses=uses, seconds=0.01) for name in names]
    begin(processes)
    for process in processes:
        assert process.wait(60) == 0
    lines = journal(tmp_path)
    for begins, ends in zip(lines[::2], lines[1::2], strict=True):
        assert (begins.split()[1], ends) == ("begins", f"{begins.split()[0]} ends")
    turns = [line.split()[0] for line in lines[::2]]
    assert Counter(turns) == dict.fromkeys(names, uses)
    # Until the first is done nobody is far ahead.
    so_far: Counter[str] = Counter(dict.fromkeys(names, 0))
    for name in turns:
        so_far[name] += 1
        assert max(so_far.values()) - min(so_far.values()) <= MOST_AHEAD
        if so_far[name] == uses:
            break


def test_a_killed_holder_lets_go_and_so_does_one_that_stands_in_line(tmp_path: Path) -> None:
    holder, waiting, last = (sharer(tmp_path, name, uses=1, seconds=s) for name, s in (("a", 60), ("b", 60), ("c", 0)))
    begin([holder])
    wait_for(tmp_path, "a begins")
    begin([waiting])
    time.sleep(0.3)
    begin([last])
    time.sleep(0.3)
    waiting.kill()
    waiting.wait()
    assert journal(tmp_path) == ["a begins"]
    holder.kill()
    holder.wait()
    assert last.wait(30) == 0
    assert journal(tmp_path) == ["a begins", "c begins", "c ends"]


def test_alone_a_sharer_hardly_waits(tmp_path: Path) -> None:
    turns, waits = GpuTurns(tmp_path / "gpu-0"), Waits()
    for _ in range(100):
        with turns.taken(waits):
            pass
    assert 0 < waits.seconds < 1


def test_what_is_waited_for_is_told(tmp_path: Path) -> None:
    holder = sharer(tmp_path, "a", uses=1, seconds=0.5)
    begin([holder])
    wait_for(tmp_path, "a begins")
    turns, waits = GpuTurns(tmp_path / "gpu-0"), Waits()
    with turns.taken_for("build", waits):
        assert (waits.seconds, journal(tmp_path)) == (0, ["a begins"])  # The host builds: nothing to wait for.
    with turns.taken_for("check", waits):
        assert journal(tmp_path) == ["a begins", "a ends"]
    assert 0.1 < waits.seconds < 5
    assert holder.wait(30) == 0


def test_threads_of_one_evaluator_take_turns_as_well(tmp_path: Path) -> None:
    turns, inside, most = GpuTurns(tmp_path / "gpu-0"), list[int](), list[int]()

    def use() -> None:
        for _ in range(20):
            with turns.taken(Waits()):
                inside.append(1)
                time.sleep(0.001)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=use) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 60


def test_an_exception_within_a_turn_gives_it_back(tmp_path: Path) -> None:
    turns = GpuTurns(tmp_path / "gpu-0")
    with pytest.raises(KeyError), turns.taken(Waits()):
        raise KeyError
    with turns.taken(Waits()):
        pass


def test_who_has_the_device_alone_waits_for_nothing() -> None:
    waits = Waits()
    with NO_TURNS.taken(waits), NO_TURNS.taken_for("check", waits):
        assert (NO_TURNS.is_shared, waits.seconds) == (False, 0)


def test_no_more_sharers_can_be_set_than_stand_in_line_in_order() -> None:
    (limit,) = (each.le for each in EvaluatorSettings.model_fields["sharers"].metadata if hasattr(each, "le"))
    assert limit == MOST_SHARERS
