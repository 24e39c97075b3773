"""Formats of one workload on the device, by key; knows no GPU library."""

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from services.evaluator.device import BuiltMatrix
from sparsesmith.formats.format import Layout


class OnDevice(Protocol):
    """A layout's arrays in device memory."""

    @property
    def num_bytes(self) -> int: ...

    def is_intact(self) -> bool:
        """Whether no kernel wrote into it."""
        ...


Held = TypeVar("Held", bound=OnDevice)


def outline(layout: Layout) -> Layout:
    """The same with zeros for its arrays, which take no memory: types and lengths are what buffers are made by."""

    def zeros(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return np.broadcast_to(np.zeros((), array.dtype), (array.size,))

    sources = layout.value_sources
    return replace(
        layout,
        indices={name: zeros(array) for name, array in layout.indices.items()},
        value_sources=None if sources is None else np.broadcast_to(np.int32(0), (sources.size,)),
    )


class LayoutCache(Generic[Held]):
    """Up to a number of bytes; the oldest go first."""

    def __init__(self, upload: Callable[[Layout], Held], max_bytes: int) -> None:
        self._upload = upload
        self._max_bytes = max_bytes
        self._layouts: dict[str, Held] = {}
        self._again: dict[str, Callable[[], Layout]] = {}
        """How the host builds what was built on the device, of which it has the outline alone."""

    def hold(self, key: str, built: Held, again: Callable[[], Layout]) -> None:
        """A layout that need not be uploaded: it was built on the device."""
        self._layouts[key] = built
        self._again[key] = again
        self._make_room()

    def get(self, matrix: BuiltMatrix) -> Held:
        """The matrix's layout on the device, uploaded again where a kernel has damaged it.

        Raises what the upload does where memory is short.
        """
        found = self._layouts.pop(matrix.key, None)
        if found is None or not found.is_intact():
            found = self._upload(self._again[matrix.key]() if matrix.key in self._again else matrix.layout)
        self._layouts[matrix.key] = found
        self._make_room()
        return found

    def _make_room(self) -> None:
        while len(self._layouts) > 1 and sum(layout.num_bytes for layout in self._layouts.values()) > self._max_bytes:
            del self._layouts[next(iter(self._layouts))]
