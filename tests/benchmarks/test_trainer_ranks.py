"""Updates by one process and by two, as torchrun starts them, on a policy of toy size."""

import json
import os
import sys
from pathlib import Path

import pytest

from benchmarks.learning.trainer_ranks import main
from benchmarks.report.policy import rank_lines
from tests.generator.tiny_policy import make_policy, write_policy


def test_two_processes_learn_what_one_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    policy = tmp_path / "policy"
    write_policy(policy, make_policy())
    passes = ["--processes", "1", "2", "--micro-batch-tokens", "4096"]
    toy = ["--records", "8", "--updates", "2", "--device", "cpu", "--commit", "c0ffee00"]
    main([*passes, "--policy", str(policy), *toy, "--out", str(tmp_path)])
    result = json.loads((tmp_path / "cpu" / "trainer-ranks.json").read_text(encoding="utf-8"))
    alone, together = result["runs"]
    assert (alone["processes"], together["processes"]) == (1, 2)
    assert alone["moved"] > 0
    assert together["moved"] == pytest.approx(alone["moved"], rel=1e-3)
    assert together["apart_from_the_first"] < 1e-3 * alone["moved"]
    assert len(together["update_s"]) == 2
    assert rank_lines(result)[-1].startswith("| 2 | 4,096 | - | ")
