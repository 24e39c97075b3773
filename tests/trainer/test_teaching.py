"""Taught examples: matrices made from others, and of each what the shipped cost model expects to be fast."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from services.trainer.offline.commands import main
from services.trainer.offline.example_file import read_examples
from services.trainer.offline.examples import ExampleRules, Examples
from services.trainer.offline.faults import refusal
from services.trainer.offline.sides import Patterns
from services.trainer.offline.targets import TargetRule, WorkloadTargets
from services.trainer.offline.teaching import (
    MOST_COLUMNS,
    WORKLOADS,
    drawn,
    expected_fastest,
    mixed,
    taught_workloads,
)
from services.trainer.offline.variants import CHANGES, LEAST_NNZ, variants
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.program.facts import Circumstances
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.models import CostModels
from tests.families import golden
from tests.trainer.conftest import make_program
from tests.trainer.test_examples import make_workload

COST_MODEL = Path("models/cost-h200")
MESH = golden.PATTERNS["five points"]()


def cut_off(pattern: Pattern, num_rows: int) -> Pattern:
    rows = pattern.row_indices()
    kept = rows < num_rows
    return pattern_from_indices(num_rows, pattern.num_cols, rows[kept], pattern.col_indices[kept])


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("source", ["five points", "one row", "random, tall"])
def test_every_change_gives_a_pattern_within_its_shape(name: str, source: str) -> None:
    for seed in range(4):
        changed = CHANGES[name](golden.PATTERNS[source](), np.random.default_rng(seed))
        assert changed.row_offsets[0] == 0 and changed.row_offsets[-1] == changed.nnz > 0
        assert changed.col_indices.min() >= 0 and changed.col_indices.max() < changed.num_cols
        first, last = changed.row_spans
        filled = changed.row_lengths > 0
        assert np.all(last[filled] - first[filled] + 1 >= changed.row_lengths[filled])


def test_changes_do_what_they_say() -> None:
    def changed(name: str) -> Pattern:
        return CHANGES[name](MESH, np.random.default_rng(3))

    assert sorted(changed("rows_shuffled").row_lengths) == sorted(MESH.row_lengths)
    assert changed("renumbered").nnz == changed("shuffled_nearby").nnz == changed("transposed").nnz == MESH.nnz
    assert changed("thinned").nnz < MESH.nnz
    assert changed("part").nnz < MESH.nnz
    assert changed("repeated").nnz % MESH.nnz == 0
    assert changed("with_long_rows").row_lengths.max() > 4 * MESH.row_lengths.max()
    counts = np.sort(np.bincount(changed("with_popular_columns").col_indices, minlength=MESH.num_cols))[::-1]
    assert counts[: MESH.num_cols // 100].sum() > 0.1 * MESH.nnz
    assert (changed("with_empty_rows").row_lengths == 0).sum() > (MESH.row_lengths == 0).sum()


def test_variants_are_the_same_each_time_and_within_their_limit() -> None:
    once, again = (dict(variants("mesh", MESH, 6, most_nnz=3 * MESH.nnz)) for _ in range(2))
    assert list(once) == list(again) and len(once) == 6
    assert [each.digest for each in once.values()] == [each.digest for each in again.values()]
    assert len({each.digest for each in once.values()}) == 6
    assert all(LEAST_NNZ <= each.nnz <= 3 * MESH.nnz for each in once.values())
    assert not list(variants("mesh", MESH, 6, most_nnz=LEAST_NNZ - 1))


def test_what_is_taught_is_what_the_model_expects_to_be_fastest_and_legal() -> None:
    models = CostModels(COST_MODEL)
    grid = grid_of(MESH, "spmv", "float32")
    cost = models.expected("spmv")
    programs = expected_fastest(grid, cost, 5)
    log_costs = {grid.instance(index).written: each for index, each in enumerate(cost.log_costs(grid))}
    unknown = cost.left_out | cost.never_seen
    best = min(each for index, each in enumerate(cost.log_costs(grid)) if grid.families[index] not in unknown)
    assert programs[0].median_us == 1.0
    assert len({each.program for each in programs}) == 5
    assert not {each.family for each in programs} & unknown
    for each in programs:
        assert math.log(each.median_us) == pytest.approx(log_costs[each.program] - best, abs=1e-9)
    assert [each.median_us for each in programs] == sorted(each.median_us for each in programs)
    for workload in taught_workloads("mesh", MESH, models, 3):
        key = workload.key
        circumstances = Circumstances(MESH, key.num_dense_cols, 132)
        for target in workload.targets:
            assert refusal(target.program, key.operation, key.element_type, circumstances) is None


def test_nothing_is_improved_by_times_that_nobody_measured(tokenizer: object) -> None:
    expected = make_workload(is_expected=True)
    rules = ExampleRules(improve_share=1.0, repair_share=0.0)
    examples = Examples([expected], tokenizer, rules)  # type: ignore[arg-type]
    assert {each.kind for step in range(20) for each in examples.batch(step, 1)} == {"write"}


@pytest.mark.parametrize(("share", "times"), [(0.5, 4), (0.8, 1), (0.95, 1), (0.2, 16)])
def test_measured_workloads_come_as_often_as_the_share_asks_and_once_at_least(share: float, times: int) -> None:
    measured, taught = [make_workload()] * 5, [make_workload(is_expected=True)] * 20
    epoch = mixed(measured, taught, share)
    assert sum(not each.is_expected for each in epoch) == times * 5
    assert sum(each.is_expected for each in epoch) == 20
    assert mixed(measured, [], share) == measured


def test_the_stage_makes_matrices_of_the_train_side_alone_and_the_supervised_stage_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, split = tmp_path / "sources.pack", tmp_path / "split.csv"
    small = encode_pattern(cut_off(MESH, 600))
    write_pack(sources, {"mesh": small, "hidden": small})
    split.write_text("name,split\nmesh,train\nhidden,validation\n", encoding="utf-8")
    made, taught = tmp_path / "made.pack", tmp_path / "taught.jsonl.xz"
    words = ["teach", "--patterns", str(sources), "--split", str(split), "--cost-model", str(COST_MODEL)]
    words += ["--variants", "2", "--most", "2", "--processes", "1", "--out-patterns", str(made), "--out", str(taught)]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == {"sources": 1, "matrices": 2, "workloads": 2 * len(WORKLOADS)}
    workloads = read_examples(taught, TargetRule()).workloads
    assert not workloads["validation"]
    assert all(isinstance(each, WorkloadTargets) and each.is_expected for each in workloads["train"])
    names = Patterns([made]).names
    assert names == sorted({each.key.pattern for each in workloads["train"]})
    assert all(name.startswith("mesh~") for name in names)
    assert make_program(4) not in {target.program for each in workloads["train"] for target in each.targets}


def test_products_with_drawn_numbers_of_dense_columns_are_taught_of_what_was_made_and_of_its_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources, made, taught = tmp_path / "sources.pack", tmp_path / "made.pack", tmp_path / "taught.jsonl.xz"
    split = tmp_path / "split.csv"
    write_pack(sources, {"mesh": encode_pattern(cut_off(MESH, 600))})
    split.write_text("name,split\nmesh,train\n", encoding="utf-8")
    words = ["teach", "--patterns", str(sources), "--split", str(split), "--cost-model", str(COST_MODEL)]
    words += ["--variants", "1", "--columns", "3", "--most", "2", "--processes", "1", "--out-patterns", str(made)]
    assert main([*words, "--out", str(taught)]) == 0
    assert json.loads(capsys.readouterr().out)["workloads"] == 3 + len(WORKLOADS) + 3
    of_source = [each for each in read_examples(taught, TargetRule()).workloads["train"] if each.key.pattern == "mesh"]
    assert [each.key.num_dense_cols for each in of_source] == [number for _, _, number in drawn("mesh", 3)]
    assert all("let N = num_dense_cols" in target.program for each in of_source for target in each.targets)


def test_numbers_of_dense_columns_are_drawn_that_no_record_has() -> None:
    numbers = [[number for _, _, number in drawn(f"matrix {place}", 6)] for place in range(40)]
    assert all(len({*each}) == 6 and not {8, 32, 128} & {*each} and min(each) >= 2 for each in numbers)
    every = [number for each in numbers for number in each]
    assert max(every) <= MOST_COLUMNS
    powers = sum(number & (number - 1) == 0 for number in every) / len(every)
    assert 0.3 < powers < 0.7 and any(number % 2 for number in every)
    assert drawn("matrix 3", 6) == drawn("matrix 3", 6)


def test_without_a_learned_cost_model_nothing_is_taught(tmp_path: Path) -> None:
    words = ["teach", "--patterns", str(tmp_path), "--cost-model", str(tmp_path / "none"), "--processes", "1"]
    with pytest.raises(SystemExit, match="is no cost model"):
        main([*words, "--out-patterns", str(tmp_path / "made.pack"), "--out", str(tmp_path / "taught.jsonl")])
