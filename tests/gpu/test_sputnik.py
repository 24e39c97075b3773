"""On a GPU: Sputnik's product, compiled from a checkout, is right and is timed beside ours."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparsesmith.matrix.pattern import Pattern
from tests.gpu.programs import make_pattern

if TYPE_CHECKING:
    from benchmarks.measure.sputnik import Sputnik

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]

COLUMNS = [8, 32, 128]


@pytest.fixture(scope="module")
def sputnik(gpu: None, tmp_path_factory: pytest.TempPathFactory) -> "Sputnik":
    torch = pytest.importorskip("torch")
    from benchmarks.measure.sputnik import Sputnik, build

    checkout = os.environ.get("SPARSESMITH_SPUTNIK")
    if not checkout:
        pytest.skip("SPARSESMITH_SPUTNIK names no checkout")
    target = tmp_path_factory.mktemp("sputnik") / "sputnik.so"
    major, minor = torch.cuda.get_device_capability()
    build(Path(checkout), target, f"sm_{major}{minor}")
    return Sputnik(target)


@pytest.fixture(params=["pruned", "ragged"])
def pattern(request: pytest.FixtureRequest) -> Pattern:
    """A layer; and rows of few entries, some empty, whose number no block divides."""
    from benchmarks.matrices.layers import pruned_layer

    return pruned_layer(512, 2048, 80, seed=1) if request.param == "pruned" else make_pattern(3001, 2500, 0.004)


@pytest.mark.parametrize("num_dense_cols", COLUMNS)
def test_its_product_is_within_what_kernels_are_allowed(
    num_dense_cols: int, pattern: Pattern, sputnik: "Sputnik"
) -> None:
    from benchmarks.measure.dense import operands
    from benchmarks.measure.sputnik import checked

    values, dense = operands(pattern, num_dense_cols)
    assert 0 < checked(sputnik.calls(pattern, values, dense, "cuda"), pattern, values, dense) < 1


@pytest.mark.parametrize("num_dense_cols", COLUMNS)
def test_it_is_timed_warm_and_cold(num_dense_cols: int, pattern: Pattern, sputnik: "Sputnik") -> None:
    from benchmarks.measure.sputnik import sputnik_times

    told = sputnik_times(sputnik, pattern, num_dense_cols)
    assert told["routine"] in ("sputnik_rows_by_length", "sputnik_rows_as_stored")
    assert 0 < float(told["us"]) < 1000
    assert 0 < float(told["cold_us"]) < 1000
