"""Which device an evaluator may have."""

import pytest

from services.evaluator.confinement.profile import Profile
from services.evaluator.devices import CudaFactory, num_spares, refuse_older_driver
from services.evaluator.isolation.child import Child
from services.evaluator.isolation.confined import Confined
from services.evaluator.settings import EvaluatorSettings
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


def test_what_a_child_with_a_gpu_is_made_with_is_imported_once_for_all() -> None:
    made_with = {Child.__module__, Confined.__module__, CudaFactory.__module__}
    assert made_with <= set(Confined(CudaFactory("0"), Profile()).preloaded)


@pytest.mark.parametrize(
    ("memory_gib", "settings", "spares"),
    [
        (0, {}, (1, 4)),
        (16, {}, (1, 4)),
        (79, {}, (2, 9)),
        (140, {}, (4, 12)),
        (140, {"most_spares": 2}, (2, 2)),
        (140, {"least_spares": 4, "most_spares": 2}, (2, 2)),
        (16, {"least_spares": 6}, (6, 6)),
        (24, {"least_spares": 3, "most_spares": 5}, (3, 5)),
    ],
)
def test_spare_processes_are_as_many_as_the_memory_of_the_gpu_has_room_for(
    memory_gib: int, settings: dict[str, int], spares: tuple[int, int]
) -> None:
    assert num_spares(EvaluatorSettings(**settings), memory_gib << 30) == spares  # type: ignore[arg-type]
