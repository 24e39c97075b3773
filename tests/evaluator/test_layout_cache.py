"""What was built on the device is kept there, the host knows its outline; where it is damaged the host builds it."""

import numpy as np
import pytest

from services.evaluator.cuda.layout_cache import LayoutCache, outline
from services.evaluator.device import BuiltMatrix
from sparsesmith.formats import FORMATS, complete_parameters, format_named
from sparsesmith.formats.format import Layout
from sparsesmith.matrix.pattern import pattern_from_indices

PATTERN = pattern_from_indices(5, 4, [0, 0, 2, 4, 4, 4], [1, 3, 0, 0, 1, 2])


def build(name: str = "sell") -> Layout:
    format_ = format_named(name)
    return format_.build(PATTERN, complete_parameters(format_, {}))


class Copied:
    """A layout's copy in memory that programs write into."""

    def __init__(self, layout: Layout) -> None:
        self.columns = layout.indices["col_indices"].copy()
        self._sealed = self.columns.copy()

    @property
    def num_bytes(self) -> int:
        return int(self.columns.nbytes)

    def is_intact(self) -> bool:
        return bool((self.columns == self._sealed).all())


def make_cache(max_bytes: int = 1 << 20) -> LayoutCache[Copied]:
    return LayoutCache(Copied, max_bytes)


def matrix_of(layout: Layout, key: str = "key") -> BuiltMatrix:
    return BuiltMatrix(key, layout, layout.num_bytes(4), 0.0)


@pytest.mark.parametrize("name", FORMATS)
def test_buffers_are_as_large_in_outline(name: str) -> None:
    layout = build(name)
    drawn = outline(layout)
    assert drawn.num_bytes(4) == layout.num_bytes(4)
    assert {key: (array.dtype, array.shape) for key, array in drawn.indices.items()} == {
        key: (array.dtype, array.shape) for key, array in layout.indices.items()
    }
    assert (drawn.sizes, drawn.num_slots) == (layout.sizes, layout.num_slots)
    assert (drawn.value_sources is None) == (layout.value_sources is None)


def test_what_was_built_on_the_device_is_not_uploaded() -> None:
    cache, held = make_cache(), Copied(build())
    cache.hold("key", held, build)
    assert cache.get(matrix_of(outline(build()))) is held


def test_what_a_kernel_has_damaged_is_built_by_the_host() -> None:
    cache, held = make_cache(), Copied(build())
    cache.hold("key", held, build)
    held.columns[0] += 1
    again = cache.get(matrix_of(outline(build())))
    np.testing.assert_array_equal(again.columns, build().indices["col_indices"])
    assert cache.get(matrix_of(outline(build()))) is again


def test_what_had_to_make_room_is_built_by_the_host() -> None:
    cache = make_cache(max_bytes=1)
    cache.hold("key", Copied(build()), build)
    cache.get(matrix_of(build(), "other"))
    np.testing.assert_array_equal(cache.get(matrix_of(outline(build()))).columns, build().indices["col_indices"])


def test_what_the_host_built_is_uploaded_once_and_again_when_damaged() -> None:
    cache, matrix = make_cache(), matrix_of(build())
    first = cache.get(matrix)
    assert cache.get(matrix) is first
    first.columns[0] += 1
    np.testing.assert_array_equal(cache.get(matrix).columns, build().indices["col_indices"])
