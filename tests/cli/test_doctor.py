"""What the doctor says of the library that baselines are measured with."""

import ctypes
import tomllib
from pathlib import Path

import pytest

from sparsesmith.cli.doctor import CUSPARSE_RANGE, advice_on_cusparse, library_version

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ((12, 6, 3), "older than 12.9.4"),
        ((12, 9, 4), ""),
        ((12, 10, 0), ""),
        ((13, 0, 0), "newer than the pinned range"),
    ],
)
def test_a_library_outside_the_pinned_range_is_told_of(found: tuple[int, ...], word: str) -> None:
    advice = advice_on_cusparse(found)
    assert advice.startswith(word)
    assert bool(advice) == bool(word)


def test_the_range_is_that_of_the_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pin,) = [each for each in project["optional-dependencies"]["evaluator-gpu"] if each.startswith("nvidia-cusparse")]
    least, past = (".".join(map(str, version)) for version in CUSPARSE_RANGE)
    assert pin == f"nvidia-cusparse>={least},<{past.partition('.')[0]}"


def test_a_library_says_its_version_in_three_parts() -> None:
    """By a library of this test's own: a function that numbers its parts as cuSPARSE does."""

    def get_property(part: int, value: "ctypes._Pointer[ctypes.c_int]") -> int:
        value[0] = ctypes.c_int((12, 9, 4)[part])
        return 0

    class Library:
        cusparseGetProperty = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int))(get_property)

    assert library_version(Library) == (12, 9, 4)  # type: ignore[arg-type]
