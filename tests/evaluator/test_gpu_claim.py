import subprocess
import sys
from pathlib import Path

import pytest

from services.evaluator.gpu_claim import claim_gpu
from sparsesmith.errors import Unavailable

HOLDER = "import sys, fcntl; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"


def hold(path: Path) -> "subprocess.Popen[bytes]":
    """Another evaluator, which has that GPU."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


def test_each_evaluator_gets_a_gpu_of_its_own_from_the_last(tmp_path: Path) -> None:
    holder = hold(tmp_path / "gpu-2")
    assert claim_gpu(tmp_path, 3) == 1
    assert claim_gpu(tmp_path, 3) == 0
    with pytest.raises(Unavailable, match="3 GPUs, each with an evaluator"):
        claim_gpu(tmp_path, 3)
    holder.kill()
    holder.wait()
    assert claim_gpu(tmp_path, 3) == 2


def test_a_gpu_in_quarantine_is_not_taken(tmp_path: Path) -> None:
    assert claim_gpu(tmp_path, 3, lambda index: index != 2) == 1
    with pytest.raises(Unavailable, match="2 GPUs, 2 in quarantine"):
        claim_gpu(tmp_path / "other", 2, lambda index: False)


def test_a_machine_without_a_gpu_has_none_to_give(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="0 GPUs"):
        claim_gpu(tmp_path / "new", 0)


CLAIMER = """
import sys
from pathlib import Path
from services.evaluator.gpu_claim import claim_gpu
from sparsesmith.errors import Unavailable
try:
    print(claim_gpu(Path(sys.argv[1]), int(sys.argv[2]), sharers=int(sys.argv[3])), flush=True)
except Unavailable as error:
    print(error.message, flush=True)
input()
"""


def claim(folder: Path, num_gpus: int, sharers: int) -> tuple[str, "subprocess.Popen[str]"]:
    """Another evaluator, and what it was given."""
    process = subprocess.Popen(
        [sys.executable, "-c", CLAIMER, str(folder), str(num_gpus), str(sharers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process.stdout.readline().strip(), process


def test_sharers_take_one_gpu_each_before_a_second_comes_to_any(tmp_path: Path) -> None:
    claimed = [claim(tmp_path, 2, 2) for _ in range(5)]
    refusal = "2 GPUs, each with 2 evaluators, or one that shares with none: start fewer evaluators"
    assert [index for index, _ in claimed] == ["1", "0", "1", "0", refusal]
    claimed[1][1].kill()
    claimed[1][1].wait()
    again, process = claim(tmp_path, 2, 2)
    assert again == "0"
    for each in (*(process for _, process in claimed), process):
        each.kill()
        each.wait()


def test_who_shares_with_none_and_sharers_never_meet_on_a_gpu(tmp_path: Path) -> None:
    (first, alone), (second, sharer) = claim(tmp_path, 2, 1), claim(tmp_path, 2, 2)
    assert (first, second) == ("1", "0")
    with pytest.raises(Unavailable, match="2 GPUs, each with an evaluator"):
        claim_gpu(tmp_path, 2)
    for each in (alone, sharer):
        each.kill()
        each.wait()
