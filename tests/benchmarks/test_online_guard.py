import argparse
import csv
import time
from pathlib import Path

import pytest
import scipy.sparse

from benchmarks.learning.online_guard import NNZ, Judged, Load, Posted, judge, put_under_load, told, told_of, write
from benchmarks.matrices.split import SPLIT_FILE
from sparsesmith.matrix.pack import pack_index
from tests.generator.live_service import Evaluators, live_service
from tests.generator.orders import make_pattern


def test_a_pack_holds_matrices_of_the_train_side_and_of_the_right_size_alone(tmp_path: Path) -> None:
    with SPLIT_FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    suited = [row["name"] for row in rows if row["split"] == "train" and NNZ[0] <= int(row["nnz"]) <= NNZ[1]][:4]
    others = [row["name"] for row in rows if row["split"] != "train"][:2]
    others += [row["name"] for row in rows if row["split"] == "train" and int(row["nnz"]) > NNZ[1]][:2]
    for name in suited + others:
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", scipy.sparse.identity(5, format="csr"))
    write(tmp_path / "some.pack", tmp_path, count=3)
    assert len(pack_index(tmp_path / "some.pack")) == 3
    write(tmp_path / "all.pack", tmp_path, count=100)
    assert set(pack_index(tmp_path / "all.pack")) == set(suited)


def test_clients_put_a_server_under_load_and_judge_it_matrix_by_matrix(redis_url: str) -> None:
    matrices = [(f"m{seed}", make_pattern(seed=seed)) for seed in range(3)]
    options = argparse.Namespace(seconds=1.0, clients=2, candidates=4, samples=3, search="families")
    with live_service(redis_url, Evaluators()) as http:
        load = put_under_load(str(http.base_url), matrices, options)
        judged, device = judge(str(http.base_url), matrices, options, time.monotonic() + 20)
    assert load.posted and not load.failures
    assert all(job.outcomes == {"passed": 4} for job in load.posted)
    assert sorted(each.name for each in judged) == ["m0", "m1", "m2"]
    assert all((each.passed, each.best_speedup) == ((True,) * 3, 2.0) for each in judged)
    assert device.kind == "cuda"


def test_the_load_is_told_in_quarters_and_what_ends_late_belongs_to_the_last() -> None:
    load = Load([Posted(1.0, {"passed": 3, "mismatch": 1}, (0,)), Posted(12.0, {"passed": 1, "crashed": 1}, (0, 2))])
    figures = told_of(load, seconds=8.0)
    assert [quarter["pass_share"] for quarter in figures["quarters"]] == [0.75, 0.0, 0.0, 0.5]
    assert (figures["jobs"], figures["candidates"], figures["versions"]) == (2, 6, [0, 2])


def test_a_versions_figures_are_means_over_its_samples() -> None:
    side = [
        Judged("a", (0,), (True, True), (1.0, 0.5), best_speedup=4.0),
        Judged("b", (0,), (False, True), (-0.4, 0.1), best_speedup=1.0),
    ]
    figures = told(side)
    assert (figures["samples"], figures["pass_at_1"]) == (4, 0.75)
    assert figures["mean_reward"] == pytest.approx(0.3)
    assert figures["best_of_n_over_best_routine"] == pytest.approx(2.0)
