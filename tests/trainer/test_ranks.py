"""Two processes make the update that one makes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from services.trainer.online.ranks import Ranks
from tests.trainer.several_processes import made


def test_two_processes_come_to_the_weights_of_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.trainer.several_processes", str(tmp_path / "told.pt")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    together, alone = torch.load(tmp_path / "told.pt", weights_only=False), made(Ranks())
    networks, figures = alone["networks"], alone["figures"]
    assert isinstance(networks, dict) and isinstance(figures, dict)
    for name, tensor in networks.items():
        torch.testing.assert_close(together["networks"][name], tensor, rtol=0, atol=2e-5)
    # Sums over a program, in float32 and in another order: a few units of the last place.
    assert together["figures"] == pytest.approx(figures, rel=1e-5, abs=1e-4)


def test_a_process_alone_sends_nothing_and_takes_all() -> None:
    alone = Ranks()
    assert alone.leads
    assert alone.part(range(5)) == [0, 1, 2, 3, 4]
    assert [Ranks(index, 2).part(range(5)) for index in range(2)] == [[0, 2, 4], [1, 3]]
    assert alone.total({"a": 2.0}) == {"a": 2.0}
