"""Shipped weights load unchanged when an operation, an element type and an architecture are added."""

import json
import math
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from sparsesmith.policy.checkpoint import load_policy
from sparsesmith.policy.description import ENCODER_FILE
from sparsesmith.prompts.header import ARCHITECTURES, FIRST_HEADER_SIZES, HEADER_SIZES, header, rows_of_first_table
from tests.policy.embed_shipped import KNOWN, LATER, SHIPPED

ROOT = Path(__file__).parents[2]
OUTSIDE = ROOT / "tests" / "operations" / "outside"


def embedded(*words: str) -> dict[str, list[float]]:
    path = os.pathsep.join(map(str, (OUTSIDE, ROOT, ROOT / "proto")))
    run = subprocess.run(
        [sys.executable, "-m", "tests.policy.embed_shipped", *words],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    told: dict[str, list[float]] = json.loads(run.stdout.splitlines()[-1])
    return told


def test_what_was_known_is_shown_as_before_and_what_came_later_can_be_shown() -> None:
    before, after = embedded(), embedded("more")
    assert len(before) == len(KNOWN)
    assert {name: after[name] for name in before} == before
    added = {name: numbers for name, numbers in after.items() if name not in before}
    assert len(added) == len(LATER)
    assert all(math.isfinite(number) for numbers in added.values() for number in numbers)
    assert len({tuple(numbers) for numbers in after.values()}) == len(after), (
        "an id that came later is told from others"
    )


def test_the_shipped_file_has_a_row_for_every_id_that_may_come() -> None:
    assert len(load_file(SHIPPED / ENCODER_FILE)["header.weight"]) == sum(HEADER_SIZES)


def test_every_known_id_finds_its_row_of_a_file_from_before_there_were_spare_ones(tmp_path: Path) -> None:
    for file in SHIPPED.iterdir():
        (tmp_path / file.name).symlink_to(file)
    weights = load_file(SHIPPED / ENCODER_FILE)
    first = weights["header.weight"][rows_of_first_table()].contiguous()
    (tmp_path / ENCODER_FILE).unlink()
    save_file({**weights, "header.weight": first}, tmp_path / ENCODER_FILE)
    encoder = load_policy(tmp_path).encoder
    starts = np.cumsum([0, *FIRST_HEADER_SIZES[:-1]])
    known = product(("spmv", "spmm"), ("float32", "float64"), (1, 2, 33, 1024), ARCHITECTURES[: FIRST_HEADER_SIZES[3]])
    for operation, element_type, columns, architecture in known:
        ids = header(operation, element_type, columns, architecture)  # type: ignore[arg-type]
        tokens = encoder.header(torch.from_numpy(ids) + encoder.get_buffer("header_offsets"))
        assert torch.equal(tokens, first.float()[torch.from_numpy(starts + ids)]), (
            operation,
            element_type,
            architecture,
        )
