"""Which device an evaluator may have."""

import pytest

from services.evaluator.devices import refuse_older_driver
from sparsesmith.errors import Unavailable


def test_a_driver_that_is_too_old_is_named_with_what_is_needed() -> None:
    with pytest.raises(Unavailable) as refusal:
        refuse_older_driver(12_080)
    error = refusal.value
    assert error.message == "the GPU's driver runs CUDA 12.8 at most: CuPy and NVRTC need 13.0, driver 580 or newer"
    assert (error.field, error.value, error.limit) == ("driver", "12.8", "13.0")


@pytest.mark.parametrize("cuda_version", [13_000, 13_010, 14_000, None])
def test_a_driver_that_is_new_enough_or_says_nothing_is_taken(cuda_version: int | None) -> None:
    refuse_older_driver(cuda_version)
