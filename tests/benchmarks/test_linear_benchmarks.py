"""The benchmarks of solvers, tiny: rows that are written one by one, loops that solve, a file that is gone on with."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

from benchmarks.matrices.generated import stencil_2d
from benchmarks.matrices.linear_programs import KINDS, linear_program, quadratic_assignment
from benchmarks.report.evidence import _origin
from benchmarks.report.operators import call_lines, epoch_lines, promise_lines, transposed_lines
from benchmarks.report.solvers import conjugate_lines, programme_lines
from benchmarks.solvers import linear_programs, linear_solvers, operator_promises, transposed_products
from benchmarks.solvers.linear_programs import PrimalDual
from benchmarks.solvers.linear_solvers import ConjugateGradients, positive_definite
from benchmarks.solvers.products import Arrays, Product, SparseProduct
from benchmarks.solvers.row_files import RowFile
from sparsesmith_proto.kernel import DeviceDescription

pytestmark = pytest.mark.filterwarnings("ignore:.*SciPy computes the products:RuntimeWarning")
QUICK = ["--candidates", "2", "--iterations", "3", "--turns", "1"]


def rows(path: Path) -> list[dict[str, Any]]:
    return list(json.loads(path.read_text())["rows"])


def test_iterations_of_conjugate_gradients_are_timed_and_gone_on_with(tmp_path: Path) -> None:
    words = [*QUICK, "--nnz", "300", "--out", str(tmp_path)]
    path = tmp_path / "cpu" / "linear-solvers.json"
    linear_solvers.main([*words, "--matrices", "1"])
    (only,) = rows(path)
    assert only["name"] == "stencil2d5-3e2" and only["over_csr"] > 0 and only["over_best"] is None
    assert only["residual"]["operator"] == pytest.approx(only["residual"]["csr"], rel=1e-6)
    before = path.read_text()
    shown = conjugate_lines(json.loads(before) | {"launched_over_csr": 1.5, "over_best": 1.29})
    ours, theirs = (only["us_an_iteration"][side] for side in ("operator", "csr"))
    assert shown[2] == (
        f"| stencil2d5-3e2 | {only['rows']} | {only['nnz']} | {only['answer']} | {ours:.2f} | {theirs:.2f} | - "
        f"| {theirs / ours:.2f}x | - | - | - | - |"
    )
    assert shown[-2:] == [
        "- launched, over cupyx with its CSR: **1.50x** (aim: 1.5x)",
        "- replayed, over the best routine: 1.29x (aim: 1.3x)",
    ]
    linear_solvers.main([*words, "--matrices", "1"])
    assert path.read_text() == before  # Nothing is missing.
    linear_solvers.main([*words, "--matrices", "2", "--seconds", "0"])
    assert path.read_text() == before  # No row is begun.


@pytest.mark.parametrize("storage", ["copy", "shared"])
def test_both_products_of_a_linear_programme_are_timed(storage: str, tmp_path: Path) -> None:
    words = [*QUICK, "--sizes", "2e2", "--kinds", "transport", "--storage", storage, "--out", str(tmp_path)]
    linear_programs.main(words)
    (only,) = rows(tmp_path / "cpu" / "linear-programs.json")
    assert {each["by"] for each in only["runs"]} <= {"kernel", "cupy"}
    for answer, each in zip(only["answers"], only["runs"], strict=True):
        assert each["best_us"] <= each["default_us"] and (answer != "kernel" or each["kernel_us"] < each["best_us"])
    assert only["objective"]["operator"] == pytest.approx(only["objective"]["library"])
    assert only["extra_bytes"] > 0 and only["loop_over_library"] > 0
    failed = {"name": "qap-2e2", "failed": "why"}
    shown = programme_lines({"rows": [only, failed], "products_over_library": 1.75, "loop_over_library": 1.2})
    ours, theirs = (only["us_of_both_products"][side] for side in ("operator", "library"))
    assert f" | {ours:.2f} | {theirs:.2f} | {theirs / ours:.2f}x | " in shown[2]
    assert shown[-3:] == [
        "- both products: **1.75x** (aim: 1.7x)",
        "- the whole loop: 1.20x (aim: 1.4x)",
        "- qap-2e2 failed: why",
    ]


def test_products_with_the_transpose_are_timed_and_failed_rows_are_measured_again(tmp_path: Path) -> None:
    words = ["--names", "jagmesh7", "--candidates", "2", "--turns", "1", "--out", str(tmp_path)]
    path = tmp_path / "cpu" / "transposed-products.json"
    transposed_products.main(words)
    (only,) = rows(path)
    assert set(only["times"]) == {"copy", "shared", "of_stored", "of_copy"} and max(only["errors"].values()) < 1e-6
    assert only["extra_bytes"]["copy"] >= 0 and only["copy_over_of_stored"] > 0
    content = json.loads(path.read_text())
    assert content["copy_over_of_copy_float32_with_fallback"] >= 1
    lines = transposed_lines(content)
    assert lines[2].startswith(f"| jagmesh7-float32 | 7,450 | {only['copy_over_of_stored']:.2f}x | ")
    assert f"- copy over of copy float32: {only['copy_over_of_copy']:.2f}x" in lines
    content["rows"] = [{"name": only["name"], "failed": "as if"}]
    path.write_text(json.dumps(content))
    transposed_products.main([*words, "--seconds", "0"])
    assert "failed" in rows(path)[0]
    transposed_products.main(words)
    assert "failed" not in rows(path)[0]


class Uncleared:
    """A product that adds to what lies in its result."""

    def __init__(self, matrix: scipy.sparse.csr_matrix, before: float) -> None:
        self.given, self._matrix = np.zeros(matrix.shape[1], np.float32), matrix
        self._found = np.full(matrix.shape[0], before, np.float32)

    def run(self) -> Any:
        self._found += self._matrix @ self.given
        return self._found

    def renew(self) -> None:
        self._found[...] = 0


def test_a_wrong_product_says_whose_where_and_what_comes_of_another_run() -> None:
    matrix = scipy.sparse.random(40, 30, 0.2, "csr", np.float32, rng=np.random.default_rng(5))
    products: dict[str, Product] = {
        "copy": SparseProduct(matrix.T.tocsr(), Arrays()),
        "of_stored": Uncleared(matrix.T.tocsr(), 0),
    }
    names = {"of_stored": "cusparse_csr_alg1"}
    assert max(transposed_products.checked(products, names, matrix, "float32", Arrays()).values()) < 1e-6
    products["of_stored"] = Uncleared(matrix.T.tocsr(), 1)
    words = (
        r"^of_stored \(cusparse_csr_alg1\): A\^T x is off by \S+, at most 0.0001: 30 of 30 entries, "
        r"\[\d+\] is \S+, expected \S+ where \|A\| \|x\| is \S+; x lies there as it was given: yes; "
        r"read again off by \S+; run again off by \S+; over NaN off by nan; prepared anew off by [0-9.]+e-0[789]$"
    )
    with pytest.raises(ArithmeticError, match=words):
        transposed_products.checked(products, names, matrix, "float32", Arrays())


def test_a_row_that_cannot_be_measured_says_why_and_the_next_is_begun(tmp_path: Path) -> None:
    device = DeviceDescription(
        kind="interpreter", name="none", architecture="sm_90", num_sms=1, copy_bandwidth_gbs=1, versions={}
    )
    file = RowFile("linear_solvers", device, argparse.Namespace(out=tmp_path, commit="c0ffee"), {}, lambda rows: {})
    file.measure("first", lambda: {"us": 1 / 0})
    file.measure("second", lambda: {"us": 2.0})
    assert rows(file.path) == [
        {"name": "first", "commit": "c0ffee", "failed": "ZeroDivisionError: division by zero"},
        {"name": "second", "commit": "c0ffee", "us": 2.0},
    ]


def test_a_row_that_is_gone_on_with_keeps_the_commit_that_it_was_measured_at(tmp_path: Path) -> None:
    device = DeviceDescription(
        kind="interpreter", name="none", architecture="sm_90", num_sms=1, copy_bandwidth_gbs=1, versions={}
    )
    for commit, name in (("c0ffee", "first"), ("decaf", "second")):
        options = argparse.Namespace(out=tmp_path, commit=commit)
        file = RowFile("linear_solvers", device, options, {}, lambda rows: {})
        file.fill({name: lambda: {"us": 1.0} for name in ("first", name)}, math.inf)
    assert [(row["name"], row["commit"]) for row in rows(file.path)] == [("first", "c0ffee"), ("second", "decaf")]
    assert json.loads(file.path.read_text())["commit"] == "decaf"
    assert "commits c0ffee (first); decaf (second)" in _origin(json.loads(file.path.read_text()))


def test_the_loop_of_conjugate_gradients_solves() -> None:
    matrix, arrays = positive_definite(stencil_2d(12, 5)), Arrays()
    loop = ConjugateGradients(SparseProduct(matrix, arrays), arrays, matrix.shape[0])
    loop.run(40)
    few = loop.residual(matrix)
    loop.run(120)
    assert loop.residual(matrix) < min(1e-6, few)


@pytest.mark.parametrize("kind", KINDS)
def test_the_solution_of_a_linear_programme_is_known_and_found(kind: str) -> None:
    programme, arrays = linear_program(kind, 150), Arrays()
    matrix = programme.matrix
    found = scipy.optimize.linprog(programme.c, A_eq=matrix, b_eq=programme.b)
    assert found.status == 0 and found.fun == pytest.approx(0, abs=1e-9)
    pair = SparseProduct(matrix, arrays), SparseProduct(matrix.T.tocsr(), arrays)
    loop = PrimalDual(programme, pair, arrays)
    loop.run(3000)
    assert loop.objective == pytest.approx(0, abs=0.05)
    same = linear_program(kind, 150)
    assert (same.matrix != matrix).nnz == 0 and np.array_equal(same.b, programme.b)


def test_assignments_satisfy_their_linearisation() -> None:
    matrix = quadratic_assignment(1000)
    size = next(n for n in range(2, 12) if n * n + (n * (n - 1)) ** 2 == matrix.shape[1])
    chosen = np.eye(size)[np.random.default_rng(1).permutation(size)]
    i, j, k, m = (axis.reshape(-1) for axis in np.indices((size,) * 4))
    is_pair = (i != k) & (j != m)
    products = (chosen[i, j] * chosen[k, m])[is_pair]
    results = matrix @ np.concatenate([chosen.reshape(-1), products])
    assert set(results[: 2 * size]) == {1.0} and not results[2 * size :].any()


def test_epochs_of_a_network_are_timed_and_learn_as_pygs_own(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric", reason="torch_geometric is not installed: pip install torch_geometric")
    from benchmarks.solvers import gcn_epochs

    sizes = ["--nodes", "60", "--edges", "200", "--features", "6", "--hidden", "8", "--classes", "4", "--epochs", "2"]
    gcn_epochs.main([*sizes, "--candidates", "2", "--out", str(tmp_path)])
    (only,) = rows(tmp_path / "cpu" / "gcn-epochs.json")
    assert only["failed_sides"] == {} and set(only["us_an_epoch"]) == {"operator", "pyg", "pyg_csr"}
    assert len({round(loss, 4) for loss in only["loss_after_warm_up"].values()}) == 1 and only["over_pyg"] > 0
    shown = epoch_lines({"rows": [only, {"name": "other", "failed": "why"}]})
    assert shown[2].endswith(f"| {only['over_pyg']:.2f}x | {only['over_pyg_csr']:.2f}x |")
    assert shown[-1] == "- other failed: why"
    graph = gcn_epochs.citation_graph(500, 2000)
    assert abs(graph - graph.T).max() == 0 and np.diff(graph.indptr).max() > 50
    assert abs(graph @ np.sqrt(np.diff(graph.indptr)) - np.sqrt(np.diff(graph.indptr))).max() < 1e-5


def test_what_is_promised_of_an_operator_is_measured(tmp_path: Path) -> None:
    quick = ["--candidates", "2", "--turns", "1", "--replays", "10", "--side", "12", "--types", "float64"]
    quick += ["--rows", "scaled", "replays", "solvers", "jax"]
    operator_promises.main([*quick, "--names", "jagmesh7", "--out", str(tmp_path)])
    found = {row["name"]: row for row in rows(tmp_path / "cpu" / "operator-promises.json")}
    assert list(found) == ["scaled-jagmesh7-float64", "replays", "solvers", "jax"]
    assert not [row for row in found.values() if "failed" in row]
    shown = "\n".join(promise_lines({"rows": list(found.values())}))
    assert "| jagmesh7-float64 | 7,450 | " in shown and "- 1,000 products of replayed graphs" in shown
    assert "difference from SciPy's own, relative: cg " in shown and "on cpu, bcoo: us a call " in shown
    assert 1 < found["scaled-jagmesh7-float64"]["bytes_over_plain"] < 1.2
    assert found["replays"]["same_bits"] and found["replays"]["products"] == 1000
    assert max(found["solvers"]["differences"].values()) < 1e-10
    assert max(side["error_of_vjp"] for side in found["jax"]["sides"].values()) < 1e-6


def test_alpha_and_beta_are_judged_by_the_bytes_of_each_row() -> None:
    def row(name: str, scaled: float, num_bytes: float, *, has_scratch: bool = False) -> dict[str, Any]:
        ratios = {"scaled_over_plain": scaled, "bytes_over_plain": num_bytes, "then_added_over_scaled": 1.0}
        return {"name": f"scaled-{name}", "nnz": 10, "has_scratch": has_scratch, **ratios}

    given = [row("few", 1.04, 1.01), row("short", 1.1, 1.14), row("slow", 1.1, 1.04)]
    shown = promise_lines({"rows": [*given, row("beside", 1.12, 1.04, has_scratch=True)]})
    assert shown[2:6] == [
        "| few | 10 | **1.040** | 1.010 | - | 1.000 |",
        "| short | 10 | **1.100** | 1.140 | - | 1.000 |",
        "| slow | 10 | 1.100 | 1.040 | - | 1.000 |",
        "| beside | 10 | 1.120 | 1.040 | 1.120 | 1.000 |",
    ]
    assert shown[7].endswith("where they are more: 2 of 4")
    assert shown[8].endswith("beside 1.120 where its bytes are 1.120")
    assert shown[9:] == ["- not explained by bytes: slow"]


def test_an_iteration_is_told_apart_from_its_product() -> None:
    def row(name: str, num_rows: int, nnz: int, operator: float, routine: float) -> dict[str, Any]:
        times = {"operator": operator, "routine": routine}
        ratios = dict.fromkeys(("launched_over_csr", "launched_over_best"), 1.0)
        both = {"us_an_iteration": times, "us_an_iteration_replayed": times, "over_best": routine / operator}
        return {"name": name, "rows": num_rows, "nnz": nnz, "answer": "kernel", **both, **ratios}

    given = [row("small", 100, 500, 8.0, 10.0), row("large", 1_000_000, 5_000_000, 40.0, 60.0)]
    shown = conjugate_lines({"rows": given, "device": {"copy_bandwidth_gbs": 4000.0}})
    assert "1.50x (1 matrices of 1e+06 or more), 1.25x (1 with fewer)" in shown[-2] and "8.0 us or more" in shown[-2]
    assert "gains 2.0 us of it" in shown[-2] and "large, 22.0 of 40.0 us for the 11 that" in shown[-1]


def test_programmes_are_held_against_the_copy_bandwidth() -> None:
    times = {"operator": 100.0, "library": 200.0}
    row = {
        "name": "qap-1e7",
        "rows": 1_000_000,
        "cols": 2_000_000,
        "nnz": 8_000_000,
        "answers": ["kernel", "kernel"],
        "us_of_both_products": times,
        "us_an_iteration": times,
        "extra_bytes": 0,
        "products_over_library": 2.0,
        "loop_over_library": 2.0,
    }
    shown = programme_lines({"rows": [row], "device": {"copy_bandwidth_gbs": 3000.0}})
    # 2 * (12 * 8e6 + 8 * 3e6) bytes in 100 us are 2,400 GB/s.
    assert "| qap | 80% | 40% | 2.00x | 2.50x |" in shown and "| all | 80% | 40% | 2.00x | 2.50x |" in shown


def test_petscs_iterations_are_shown_by_both_products() -> None:
    times = {"operator": 100.25, "petsc": 400.5}
    row = {"name": "petsc", "nnz": 4000, "petsc": "3.26.1", "vectors": "host", "us_an_iteration": times, "apart": 1e-9}
    assert promise_lines({"rows": [row]})[-1] == (
        "- PETSc 3.26.1's conjugate gradients, 4,000 nonzeros, vectors on the host: an iteration 100.2 us by the "
        "operator, 400.5 us by PETSc's own matrix there; solutions 1.0e-09 apart"
    )


def test_what_a_call_costs_is_shown_beside_its_aim() -> None:
    result = {
        "us_a_call": {"c": 2.5, "ctypes": 5.25},
        "python_us_a_call": {"python_out": 8.5, "torch_op": 11.5, "torch_op_traced": 20.0},
        "scaled_over_plain": 1.04,
        "update_values_copied": {"us": 40.0, "gbs": 2000.4},
        "update_values_gathered": {"us": 100.0, "gbs": 1200.0},
        "large_nnz": 10_000_000,
    }
    shown = call_lines(result)
    assert "| from C | **2.50** | <= 3 |" in shown and "| by ctypes, addresses given | 5.25 | - |" in shown
    assert "| `matvec(x, out=y)` | 8.50 | <= 8 |" in shown
    assert "| torch's operator `sparsesmith::product`, a new result each | **11.50** | <= 12 |" in shown
    assert "| the same, x requires a gradient | 20.00 | - |" in shown
    assert shown[-2].startswith("- alpha A x + beta y over A x, 10,000,000 nonzeros: **1.040** ")
    assert (
        ": 40.0 us where the format has CSR's order (the driver's copy, 2,000 GB/s read and written); 100.0 us "
        in shown[-1]
    )
    assert "60% of that copy's" in shown[-1] and shown[-1].endswith("which was not measured in this run (aim: 50%)")
    assert not any("does nothing on the same host" in line for line in shown)
    calls = {"c": 3.5, "c_own_stream": 3.5, "driver_empty_launch": 3.25}
    shown = call_lines({**result, "us_a_call": calls, "copy_gbs": 3000.0})
    assert shown[-1].endswith("copy bandwidth, 3,000 GB/s: 40% (aim: 50%)")
    assert any("3.25 us are the driver's launch" in line and "0.25 us are" in line for line in shown)
    python = {"torch_out": 8.0, "torch_op": 14.5, "torch_op_traced": 27.0}
    shown = call_lines({**result, "python_us_a_call": python})
    (only,) = (line for line in shown if line.startswith("- of torch's operator"))
    assert "8.00 us are a product" in only and "6.50 us are the result" in only and "12.50 us more" in only
    assert call_lines({**result, "copy_gbs": 2000.0})[-1].endswith("2,000 GB/s: **60%** (aim: 50%)")
