"""The runner, whole, on the interpreter: estimated times, the same files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.matrices.generated import GENERATED, GENERATED_NNZ
from benchmarks.matrices.layers import SHAPES, pruned_layer
from benchmarks.matrices.structure import Structure, structure_of
from benchmarks.matrices.suites import example_sources, generated_sources, layer_sources, llama_sources
from benchmarks.measure.dense import dense_calls
from benchmarks.measure.run import candidates_of
from benchmarks.origin import ROOT
from benchmarks.report.results import read_suites
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType


def run(out: Path, *arguments: str) -> Any:
    """The result file of a run over jagmesh7 without a GPU, and what was printed."""
    words = ["--plan", "spmv:float32:1:5", "--no-generated", "--commit", "c0ffee", "--out", str(out), *arguments]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.measure.run", *words],
        cwd=ROOT,
        env={**os.environ, "SPARSESMITH_EVALUATOR_DEVICE": "interpreter"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    run(out, "--names", "jagmesh7")
    return out


def result(out: Path) -> Any:
    return json.loads((out / "ptx-interpreter" / "suite-spmv-float32.json").read_text())


def test_a_row_says_what_was_found_and_what_it_cost(measured: Path) -> None:
    (row,) = result(measured)["rows"]
    best, search = row["families"]["best"], row["search"]
    assert (row["name"], row["nnz"], row["families"]["outcomes"]) == ("jagmesh7", 7450, {"passed": 5})
    assert best["us"] == pytest.approx(min(best["us"], row["best_baseline"]["us"] * 10))
    assert best["family"] and best["parameters"] and best["format_bytes"] > 4 * row["nnz"] and best["launches"] >= 1
    assert search["candidates"] == 5
    assert 0 < search["device_s"] <= search["search_s"] <= row["wall_s"] + search["prepare_s"]
    assert best["tuning_s"] == pytest.approx(search["prepare_s"] + search["search_s"])


def test_estimated_times_lie_apart_and_are_called_so(measured: Path) -> None:
    content = result(measured)
    assert content["device"]["kind"] == "interpreter"
    assert "traffic_model" in content["rows"][0]["families"]["best"]
    assert read_suites([content]) == []


def test_a_run_resumes_where_another_of_its_commit_stopped(measured: Path, tmp_path: Path) -> None:
    said = run(tmp_path, "--names", "jagmesh7", "bcsstk13", "--resume", str(measured))
    assert "jagmesh7 " not in said
    content = result(tmp_path)
    assert [row["name"] for row in content["rows"]] == ["bcsstk13", "jagmesh7"]
    assert content["rows"][1] == result(measured)["rows"][0]


def test_a_suite_that_was_measured_whole_is_taken_over_whole(measured: Path, tmp_path: Path) -> None:
    run(tmp_path, "--names", "jagmesh7", "--resume", str(measured))
    assert result(tmp_path)["rows"] == result(measured)["rows"]


def test_rows_of_another_commit_are_not_taken_over(measured: Path, tmp_path: Path) -> None:
    said = run(tmp_path, "--names", "jagmesh7", "--resume", str(measured), "--commit", "decaf")
    assert "jagmesh7 " in said


def test_a_run_out_of_time_says_what_it_lacks(tmp_path: Path) -> None:
    said = run(tmp_path, "--seconds", "0")
    assert "suite-spmv-float32: 0 of 2 matrices; not reached: bcsstk13, jagmesh7" in said
    assert not (tmp_path / "ptx-interpreter").exists()


def test_generated_matrices_have_the_nonzeros_that_are_said_before_they_are_made() -> None:
    assert [source.name for source in generated_sources()] == list(GENERATED)
    for name in ("stencil3d27_90", "pruned_4096_seed2"):
        _, make = GENERATED[name]
        assert make().nnz == GENERATED_NNZ[name]
    assert list(GENERATED) == list(GENERATED_NNZ)


def test_examples_are_read_where_they_are_needed() -> None:
    assert [source.load().pattern.nnz for source in example_sources()] == [83_883, 7450]


def test_neighbouring_lanes_share_sectors_of_x_and_scattered_ones_do_not() -> None:
    import numpy as np
    import scipy.sparse

    dense = pattern_from_scipy(scipy.sparse.csr_matrix(np.ones((4, 64), np.float32)))
    assert structure_of(dense, element_bytes=4) == Structure(64, 0, 64, 1 / 8)
    assert structure_of(dense, element_bytes=8).x_sectors_per_nnz == 1 / 4
    columns = np.arange(64) * 8
    scattered = pattern_from_scipy(scipy.sparse.csr_matrix((np.ones(64), (np.arange(64), columns)), shape=(66, 512)))
    assert structure_of(scattered, element_bytes=4) == Structure(1, 2, 64, 1.0)


def test_a_sample_that_leaves_numbers_open_is_measured_with_them_filled_in() -> None:
    (source,) = [each for each in example_sources() if each.load().pattern.nnz == 7450]
    pattern = source.load().pattern
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    texts = (
        "//@ format csr\n//@ let longest = row_length_max\n//@ tune block = 64 128\nint a[longest], b[block];",
        "//@ let a = nothing",
    )
    filled, refused = candidates_of(texts, Problem(workload, pattern), 132)
    assert filled.program == f"//@ format csr\nint a[{pattern.row_lengths.max()}], b[64];\n"
    assert filled.written == texts[0]
    assert refused.program == f"{texts[1]}\n"


def test_a_layer_is_pruned_by_its_share_with_rows_of_somewhat_different_lengths() -> None:
    layer = pruned_layer(256, 512, 90, seed=1)
    assert layer.nnz == 256 * 512 - 256 * 512 * 90 // 100
    assert layer.digest == pruned_layer(256, 512, 90, seed=1).digest
    assert 0.15 < layer.row_lengths.std() / layer.row_lengths.mean() < 0.5


def test_every_shape_of_layer_is_a_source_that_makes_what_its_name_says() -> None:
    sources = {source.name: source for source in layer_sources(None)}
    assert {name for name in SHAPES if f"layer_{name}_90" in sources} == set(SHAPES)
    matrix = sources["layer_resnet_group3_1x1_98"].load()
    assert (matrix.pattern.num_rows, matrix.pattern.num_cols) == SHAPES["resnet_group3_1x1"]
    assert (matrix.matrix_class, matrix.split) == ("pruned NN weights", "generated")


def test_16_bit_plans_measure_the_layers_of_a_language_model_and_any_matrix(tmp_path: Path) -> None:
    names = [source.name for source in llama_sources()]
    assert len(names) == 12 and {"llama_4096x4096_50", "llama_14336x4096_90"} < set(names)
    matrix = next(source for source in llama_sources() if source.name == "llama_4096x4096_90").load()
    assert matrix.pattern.nnz == pytest.approx(4096 * 4096 / 10, abs=10)
    said = run(tmp_path, "--plan", "spmv:bfloat16:1:2", "--layers", "--seconds", "0")
    assert "layers-spmv-bfloat16: 0 of 12" in said
    run(tmp_path, "--plan", "spmv:bfloat16:1:2", "--names", "jagmesh7")
    content = json.loads((tmp_path / "ptx-interpreter" / "suite-spmv-bfloat16.json").read_text())
    (row,) = content["rows"]
    assert row["vector_bytes"] == 2 * 2 * row["num_rows"] and row["families"]["best"]


@pytest.mark.parametrize("element_type", ["float32", "float16", "bfloat16"])
def test_every_way_to_ask_for_the_dense_product_gives_the_product(element_type: ElementType) -> None:
    import numpy as np
    import torch

    layer = pruned_layer(64, 96, 50, seed=1)
    for columns in (1, 8):
        found = {name: call() for name, call in dense_calls(layer, columns, element_type, "cpu").items()}
        assert found.keys() == {"matmul", "linear"} | ({"mv"} if columns == 1 else set())
        random = np.random.default_rng(1)
        a = layer.to_scipy(random.uniform(-1, 1, layer.nnz))
        expected = a @ random.uniform(-1, 1, (96, columns))
        for name, product in found.items():
            assert product.dtype == getattr(torch, element_type)
            shaped = product.t() if name == "linear" else product.reshape(64, columns)
            np.testing.assert_allclose(
                shaped.float().numpy(), expected, atol=0.2 if element_type != "float32" else 1e-4
            )
