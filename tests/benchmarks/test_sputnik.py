"""Sputnik's rows: how its library is called, checked and compiled."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch

from benchmarks.matrices.layers import pruned_layer
from benchmarks.measure.dense import operands
from benchmarks.measure.nvcc import NoNvcc, nvcc_command
from benchmarks.measure.sputnik import (
    ENTRY,
    PRODUCT,
    Sputnik,
    SputnikUnusable,
    build,
    checked,
    row_orders,
    sources_digest,
)
from benchmarks.origin import ROOT
from sparsesmith.matrix.pattern import pattern_from_scipy

STAND_IN = Path(__file__).with_name("sputnik_stand_in.c")
Compile = Callable[..., Path]


@pytest.fixture
def compiled(tmp_path: Path) -> Compile:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")

    def make(*options: str) -> Path:
        target = tmp_path / "stand_in.so"
        subprocess.run([compiler, *options, "-shared", "-fPIC", "-o", str(target), str(STAND_IN)], check=True)
        return target

    return make


def parameters_of(source: Path) -> list[str]:
    (found,) = re.findall(r"int sputnik_spmm\((.*?)\) \{", source.read_text(encoding="utf-8"), re.DOTALL)
    return [re.sub(r"\s+", " ", each.strip()).replace("cudaStream_t", "void*") for each in found.split(",")]


def test_the_stand_in_is_called_as_the_entry_that_is_compiled() -> None:
    assert parameters_of(STAND_IN) == parameters_of(ENTRY)


@pytest.mark.parametrize("num_dense_cols", [8, 32, 128])
def test_sizes_and_arrays_arrive_and_every_order_of_rows_gives_the_product(
    compiled: Compile, num_dense_cols: int
) -> None:
    layer = pruned_layer(65, 96, 70, seed=1)
    values, dense = operands(layer, num_dense_cols)
    library = Sputnik(compiled())
    calls = library.calls(layer, values, dense, "cpu")
    assert library.sources == "sha256_of_the_stand_in"
    assert calls.keys() == {"rows_by_length", "rows_as_stored"}
    assert 0 < checked(calls, layer, values, dense) < 1
    expected = layer.to_scipy(values) @ dense
    for call in calls.values():
        np.testing.assert_allclose(call().numpy(), expected, atol=1e-4)


def test_rows_are_taken_by_length_the_longest_first() -> None:
    lengths = [2, 5, 0, 5, 7]
    pattern = pattern_from_scipy(scipy.sparse.csr_matrix(np.arange(7)[None, :] < np.array(lengths)[:, None]))
    orders = row_orders(pattern)
    assert orders["rows_by_length"].tolist() == [4, 1, 3, 0, 2]
    assert orders["rows_as_stored"].tolist() == [0, 1, 2, 3, 4]
    assert {order.dtype for order in orders.values()} == {np.dtype(np.int32)}


@pytest.mark.parametrize("spoiled", ["0.01f", "(0.0f / 0.0f)"])
def test_a_wrong_result_does_not_count(compiled: Compile, spoiled: str) -> None:
    layer = pruned_layer(64, 96, 70, seed=1)
    values, dense = operands(layer, 8)
    calls = Sputnik(compiled(f"-DSPOILED={spoiled}")).calls(layer, values, dense, "cpu")
    with pytest.raises(SputnikUnusable, match=r"rows_by_length: 64 of 512 entries are wrong, .* at row 0, column 7"):
        checked(calls, layer, values, dense)


def test_rows_that_were_left_out_are_wrong(compiled: Compile) -> None:
    layer = pruned_layer(64, 96, 70, seed=1)
    values, dense = operands(layer, 8)
    with pytest.raises(SputnikUnusable, match="untouched: 512 of 512 entries are wrong"):
        checked({"untouched": lambda: torch.full((64, 8), float("nan"))}, layer, values, dense)


def test_an_error_of_cudas_runtime_is_told(compiled: Compile) -> None:
    layer = pruned_layer(64, 96, 70, seed=1)
    values, dense = operands(layer, 8)
    call = Sputnik(compiled("-DSTATUS=700")).calls(layer, values, dense, "cpu")["rows_as_stored"]
    with pytest.raises(SputnikUnusable, match="sputnik_spmm: CUDA's runtime says 700"):
        call()


def test_a_library_that_is_none_of_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("nothing")
    with pytest.raises(SputnikUnusable, match=r"text\.so is none that `benchmarks\.measure\.sputnik` compiles"):
        Sputnik(tmp_path / "text.so")
    with pytest.raises(SputnikUnusable, match=r"there is no library .*missing\.so"):
        Sputnik(tmp_path / "missing.so")


def test_a_folder_without_sputniks_product_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(SputnikUnusable, match=r"is no checkout of google-research/sputnik: it has no sputnik/spmm"):
        build(tmp_path, tmp_path / "out.so")


def test_the_digest_is_of_what_is_compiled(tmp_path: Path) -> None:
    checkout = made_checkout(tmp_path)
    before = sources_digest(checkout)
    (checkout / "README.md").write_text("other words")
    assert sources_digest(checkout) == before
    (checkout / "sputnik" / "spmm" / "cuda_spmm.h").write_text("// another\n")
    assert sources_digest(checkout) != before
    assert re.fullmatch("sha256_[0-9a-f]{12}", before)


def test_a_compiler_that_is_not_there_is_named(tmp_path: Path) -> None:
    ran = command(str(made_checkout(tmp_path)), str(tmp_path / "out.so"), "--nvcc", str(tmp_path / "nvcc"))
    assert (ran.returncode, ran.stderr) == (1, f"there is no nvcc at {tmp_path / 'nvcc'}\n")


def test_what_nvcc_says_is_told(tmp_path: Path) -> None:
    checkout = made_checkout(tmp_path)
    (checkout / "sputnik" / "spmm" / "cuda_spmm.h").write_text("#error this is not Sputnik\n")
    ran = command(str(checkout), str(tmp_path / "out.so"), "--nvcc", str(an_nvcc()))
    assert ran.returncode == 1
    assert "nvcc does not compile sputnik_entry.cu, cuda_spmm.cu.cc" in ran.stderr
    assert "this is not Sputnik" in ran.stderr
    assert not (tmp_path / "out.so").exists()


def test_a_checkout_is_compiled_without_a_gpu(tmp_path: Path) -> None:
    checkout = os.environ.get("SPARSESMITH_SPUTNIK")
    if not checkout:
        pytest.skip("SPARSESMITH_SPUTNIK names no checkout")
    target = tmp_path / "sputnik.so"
    ran = command(checkout, str(target), "--nvcc", str(an_nvcc()))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(f"{target}: Sputnik {sources_digest(Path(checkout))} for sm_90, ")
    assert Sputnik(target).sources == sources_digest(Path(checkout))


def an_nvcc() -> Path:
    """Skips without one."""
    try:
        return Path(nvcc_command("sm_90")[0])
    except NoNvcc as error:
        pytest.skip(str(error))


def made_checkout(folder: Path) -> Path:
    """With what the digest is of, and nothing in it."""
    checkout = folder / "checkout"
    (checkout / PRODUCT.parent).mkdir(parents=True)
    (checkout / PRODUCT).write_text('#include "sputnik/spmm/cuda_spmm.h"\n')
    (checkout / "sputnik" / "spmm" / "cuda_spmm.h").write_text("// empty\n")
    return checkout


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.measure.sputnik", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
