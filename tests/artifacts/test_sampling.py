"""Sampled products on a stand-in driver; what needs a GPU is in tests/gpu."""

import shutil
import sys
from pathlib import Path

import pytest

from sparsesmith.artifacts.sampling import SampledLauncher
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from tests.artifacts.answers import make_matrix
from tests.operator.stand_in import run_on_the_stand_in


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_sampled_products_on_the_stand_in(tmp_path: Path) -> None:
    run_on_the_stand_in(Path(__file__).with_name("sampling_on_the_stand_in.py"), tmp_path)


def test_without_a_gpu_and_of_16_bits_there_is_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    pattern = pattern_from_scipy(make_matrix())
    with pytest.raises(Unavailable, match="needs CuPy"):
        SampledLauncher(pattern, "float32", 3)
    with pytest.raises(InvalidOption, match="sddmm is computed for float32, float64"):
        SampledLauncher(pattern, "float16", 3)
