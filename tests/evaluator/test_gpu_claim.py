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
