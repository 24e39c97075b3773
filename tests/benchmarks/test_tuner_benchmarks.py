"""Records of sweeps: what is measured, how they are read, what is made of them."""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.measure.measured import Measured, read_measured
from benchmarks.report.evidence import sections
from benchmarks.report.targets import other_table
from benchmarks.tuning.oracle import known_cost, play, row, summary
from benchmarks.tuning.strategy_worth import BestTimes, best_times, worth
from benchmarks.tuning.sweep import Choice
from benchmarks.tuning.train_cost import regrets
from sparsesmith.families.proposal import by_estimate
from sparsesmith.matrix.files import MatrixLimits, read_matrix
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.tuning.columns import all_words
from tests.tuning.grids import RECORDED, ROOT, make_grid

MATRIX = "jagmesh7"


def records() -> list[dict[str, Any]]:
    """As a sweep writes them."""
    workload = {"pattern": MATRIX, "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
    found = json.loads(RECORDED.read_text(encoding="utf-8"))["matrices"][MATRIX]
    return [
        {
            **workload,
            "family": record["family"],
            "parameters": record["parameters"],
            "program": "text",
            "median_us": record["us"],
        }
        for record in found
    ]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    folder = tmp_path_factory.mktemp("sweep")
    older = [{**each, "parameters": {**each["parameters"]}} for each in records()]
    for each in older:
        each["parameters"].pop("registers")
    unknown = [{**older[0], "family": "gone"}, {**older[0], "pattern": "no such matrix"}]
    with lzma.open(folder / "sweep.jsonl.xz", "wt") as lines:
        lines.writelines(json.dumps(each) + "\n" for each in [*older, *unknown, {**older[0], "median_us": 99.0}])
    path = ROOT / "examples" / f"{MATRIX}.mtx"
    pattern, _ = read_matrix(path, path.name, MatrixLimits())
    write_pack(folder / "patterns.pack", {MATRIX: encode_pattern(pattern)})
    (found,) = read_measured([folder / "sweep.jsonl.xz"], [folder / "patterns.pack"], all_words(), "validation")
    return found


def test_records_find_their_prospects_though_they_are_older_and_were_measured_twice(measured: Measured) -> None:
    expected = sorted(record["median_us"] for record in records())
    assert len(measured.grid.prospects) >= 20
    assert set(measured.times_us) <= set(expected)
    assert measured.times_us.min() == expected[0]
    assert measured.matrix.split == "validation"
    assert measured.num_offered > len(measured.times_us)
    assert all(len(column) == len(measured.times_us) for column in measured.columns.values())


def test_the_tuner_played_against_records_ends_at_the_oracle(measured: Measured) -> None:
    played = play(measured, known_cost(measured, None))
    assert sorted(played.order) == list(range(len(measured.times_us)))
    assert played.regret_after(len(played.order)) == 0.0
    assert played.place_after(len(played.order)) == 1
    assert played.place_after(1) == 1 + sum(measured.times_us < measured.times_us[played.order[0]])
    found = summary([played])["spmv float32"]
    assert found["workloads"] == 1
    assert found["regret_after"]["1"]["mean"] >= found["regret_after"]["8"]["mean"] >= 0.0
    assert found["regret_at_share"]["0.01"] == found["regret_after"]["1"]


def test_the_report_shows_each_whole_grid_and_how_far_the_tuner_stopped_behind_it(measured: Measured) -> None:
    played = play(measured, known_cost(measured, None))
    result = {
        "kind": "tuner_grids",
        "device": "NVIDIA H200",
        "cost_model": "analytic",
        "split": "all",
        "kinds": summary([played]),
        "rows": [row(played)],
    }
    shown = "\n".join(sections([result]))
    assert "The search against whole grids" in shown
    assert f"| {MATRIX} | validation |" in shown
    behind, place = row(played)["regret_at_stop"], row(played)["place_at_stop"]
    assert f"| {behind:.1%} | {place} |" in shown
    assert any("the whole grid's best" in line for line in other_table([], [result]))


def test_without_feedback_the_order_is_the_cost_models(measured: Measured) -> None:
    played = play(measured, known_cost(measured, None), feedback=False)
    assert list(np.diff(measured.grid.estimates()[list(played.order)]) >= 0).count(False) == 0


def test_a_perfect_ranking_has_no_regret_and_the_reverse_has_it_all(measured: Measured) -> None:
    assert regrets([measured], lambda each: each.times_us)["spmv float32"] == [0.0] * 5
    worst = regrets([measured], lambda each: -each.times_us)["all"][0]
    assert worst == pytest.approx(measured.times_us.max() / measured.times_us.min() - 1)


def test_the_worth_of_a_family_is_what_the_best_loses_without_it() -> None:
    best = [
        BestTimes("spmv float32", "mesh", 5_000, {"a": 1.0, "b": 1.21}),
        BestTimes("spmv float32", "graph", 500_000, {"a": 2.0, "b": 1.0, "c": 1.0}),
    ]
    entries = {entry["family"]: entry for entry in worth(best)["spmv float32"]}
    assert entries["a"]["loss"] == pytest.approx(0.1, abs=1e-4)
    assert entries["a"]["largest_loss"] == pytest.approx(0.21, abs=1e-4)
    assert entries["a"]["loss_of_class"] == {"graph": 0.0, "mesh": 0.21}
    assert entries["a"]["loss_of_size"] == {"< 1e5": 0.21, "1e5-1e6": 0.0}
    assert (entries["b"]["loss"], entries["b"]["wins"]) == (0.0, 1)
    assert entries["c"]["measured"] == 1


def test_best_times_are_of_matrices_that_the_split_knows() -> None:
    (best,) = best_times([*records(), {**records()[0], "pattern": "no such matrix"}])
    assert best.kind == "spmv float32"
    assert best.of_family[best.fastest] == min(record["median_us"] for record in records())


def test_a_sweep_measures_likely_programs_and_a_random_share_of_the_rest() -> None:
    prospects = list(make_grid().prospects)
    likely = by_estimate(prospects)
    proposed = list(Choice().prospects(prospects, 20, "m"))[:20]
    mixed = list(Choice(random_share=0.5).prospects(prospects, 20, "m"))[:20]
    assert proposed == likely[:20]
    assert mixed[:10] == likely[:10]
    assert mixed[10:] != likely[10:20]
    assert mixed == list(Choice(random_share=0.5).prospects(prospects, 20, "m"))[:20]


def test_an_exhaustive_sweep_measures_everything_of_the_families_asked_for() -> None:
    prospects = list(make_grid().prospects)
    choice = Choice(exhaustive=True, families=frozenset({"sell"}))
    assert list(choice.prospects(prospects, 1, "m")) == [each for each in prospects if each.family.name == "sell"]


def test_the_oracles_matrices_are_held_out() -> None:
    with (ROOT / "benchmarks" / "split.csv").open(encoding="utf-8") as rows:
        validation = {line.split(",")[0] for line in rows if line.strip().endswith(",validation")}
    names = Path(ROOT / "benchmarks" / "oracle_matrices.txt").read_text(encoding="utf-8").split()
    assert len(names) == len(set(names)) == 20
    assert set(names) <= validation
