"""The runner, whole, on the interpreter: estimated times, the same files."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.matrices.generated import GENERATED, GENERATED_NNZ
from benchmarks.matrices.layers import SHAPES, pruned_layer
from benchmarks.matrices.structure import Structure, structure_of
from benchmarks.matrices.suites import dlmc_sources, example_sources, generated_sources, layer_sources, llama_sources
from benchmarks.measure.dense import dense_calls
from benchmarks.measure.run import candidates_of
from benchmarks.origin import ROOT
from benchmarks.report.results import read_suites
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType


def run(out: Path, *arguments: str) -> Any:
    """The result file of a run over jagmesh7 without a GPU, and what was printed."""
    ended = run_to_its_end(out, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run_to_its_end(out: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = ["--plan", "spmv:float32:1:5", "--no-generated", "--commit", "c0ffee", "--out", str(out), *arguments]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.measure.run", *words],
        cwd=ROOT,
        env={**os.environ, "SPARSESMITH_EVALUATOR_DEVICE": "interpreter"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


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
    assert 0 < search["as_good_at_s"] <= search["winner_at_s"] <= search["device_s"]
    assert search["as_good_at_s"] >= search["stages_s"]["baselines"]
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
    sources = {source.name: source for source in layer_sources()}
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


def test_dlmcs_matrices_are_a_suite_of_their_own(tmp_path: Path) -> None:
    names = ["dlmc_rn50_mag_0.7_bn1_projgroup4", "dlmc_rn50_vd_0.98_bn3_group4_1_1", "jagmesh7"]
    pattern = pruned_layer(16, 16, 90, seed=1)
    write_pack(tmp_path / "some.pack", dict.fromkeys(names, encode_pattern(pattern)))
    sources = dlmc_sources(tmp_path / "some.pack")
    assert [(source.name, source.split) for source in sources] == [(names[1], "train"), (names[0], "validation")]
    plan = ("--plan", "spmm:float32:8:2")
    run(tmp_path, "--dlmc", "--pack", str(tmp_path / "some.pack"), *plan, "--names", names[1])
    content = json.loads((tmp_path / "ptx-interpreter" / "dlmc-spmm-8-float32.json").read_text())
    (row,) = content["rows"]
    assert (content["kind"], row["class"], row["nnz"]) == ("dlmc", "pruned NN weights", pattern.nnz)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--dlmc",), "--dlmc needs --pack"),
        (("--layers", "--pack", "some.pack"), "--layers takes no --pack"),
        (("--layers", "--sputnik", "missing.so"), "argument --sputnik: there is no library missing.so"),
        (
            ("--layers", "--sputnik", "LIBRARY"),
            "--sputnik: plan spmv:float32: it is compiled for spmm",
        ),
        (
            ("--layers", "--sputnik", "LIBRARY", "--plan", "spmm:float16:8:2"),
            "--sputnik: plan spmm:float16: it is compiled for spmm in float32 alone",
        ),
        (("--sputnik", "LIBRARY", "--plan", "spmm:float32:8:2"), "--sputnik goes with --layers or --dlmc"),
        (
            ("--layers", "--sputnik", "LIBRARY", "--plan", "spmm:float32:8:2"),
            "--sputnik: it is timed on a GPU; the device here is PTX interpreter",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    library = tmp_path / "stand_in.so"
    if "LIBRARY" in words:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        source = Path(__file__).with_name("sputnik_stand_in.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    ended = run_to_its_end(tmp_path, *(str(library) if word == "LIBRARY" else word for word in words))
    assert ended.returncode != 0
    assert said in ended.stderr


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
