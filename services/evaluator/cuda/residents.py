"""What is kept in device memory for all programs of a workload: the draws, and each format it has met.

While a program runs, the references are XORed with a key that only the host knows: a kernel that reads out of bounds
finds no result to copy. The key is drawn anew for every run.
"""

import secrets
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import cupy
import numpy as np
import numpy.typing as npt

from services.evaluator.cuda.launch import cuda_errors
from services.evaluator.cuda.layout_cache import outline
from services.evaluator.cuda.memory import SealedMemory, uploaded, uploaded_table, whole_array
from services.evaluator.cuda.own_kernels import DeviceKernels
from services.evaluator.device import Draw
from sparsesmith.formats.format import Layout


class HeldDraws:
    """Draws in device memory, as long as somebody else refers to them."""

    def __init__(self, kernels: DeviceKernels) -> None:
        self._kernels = kernels
        self._held: list[weakref.ref[Draw]] = []
        self._table = cupy.empty((0, 2), dtype=np.uint64)
        self._rows: list[tuple[int, int]] = []

    def hold(self, draw: Draw) -> Draw:
        """The draw, whose arrays are in device memory, as it is judged there; from now on hidden while programs run."""
        held = replace(draw, widened=self._kernels.widened, narrowed=self._kernels.narrowed)
        self._held.append(weakref.ref(held))
        return held

    def another(self, draw: Draw) -> Draw | None:
        """One at random of the draws with inputs that are held beside this one."""
        held = [each for each in (reference() for reference in self._held) if each is not None and each.inputs]
        others = [each for each in held if each is not draw]
        return secrets.choice(others) if others else None

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """References are unreadable on the stream between entry and exit."""
        key = secrets.randbits(63)
        # Kept alive until they are shown again: the memory of a draw that went away would belong to somebody else.
        draws = [draw for draw in (reference() for reference in self._held) if draw is not None]
        self._apply(draws, key)
        try:
            yield
        finally:
            self._apply(draws, key)

    def _apply(self, draws: Sequence[Draw], key: int) -> None:
        if not draws:
            return
        references: list[cupy.ndarray] = [each.reference for draw in draws for each in draw.expected.values()]
        rows = [(int(reference.data.ptr), int(reference.size)) for reference in references]
        if rows != self._rows:
            self._table = uploaded_table(rows, self._kernels.stream)
            self._rows = rows
            self._held = [weakref.ref(draw) for draw in draws]
        self._kernels.apply_masks(int(self._table.data.ptr), len(rows), key)


@dataclass(frozen=True, eq=False)
class DeviceLayout:
    """A format's index arrays as uploaded or built there; programs get copies."""

    layout: Layout
    """Where `again` is given, in outline."""
    indices: dict[str, "cupy.ndarray"]
    value_sources: "cupy.ndarray | None"
    sealed: SealedMemory
    again: Callable[[], Layout] | None = None
    """Builds it on the host, bit for bit."""

    @property
    def num_bytes(self) -> int:
        sources = 0 if self.value_sources is None else int(self.value_sources.nbytes)
        return sources + sum(int(array.nbytes) for array in self.indices.values())

    def is_intact(self) -> bool:
        """Whether no kernel wrote into it; waits for the stream."""
        return self.sealed.is_intact()

    @cached_property
    def sources_on_host(self) -> npt.NDArray[np.int32] | None:
        """See `Layout.value_sources`; copied from the device when first asked for, if they are still what they were."""
        if self.again is None or self.value_sources is None:
            return self.layout.value_sources
        with cuda_errors():
            copied: npt.NDArray[np.int32] = self.value_sources.get()
        return copied if self.is_intact() else self.again().value_sources


def upload_layout(layout: Layout, kernels: DeviceKernels) -> DeviceLayout:
    """Raises cupy.cuda.memory.OutOfMemoryError."""
    with cuda_errors():
        indices = {name: uploaded(array, kernels.stream) for name, array in layout.indices.items()}
        sources = None if layout.value_sources is None else uploaded(layout.value_sources, kernels.stream)
    return sealed_layout(layout, indices, sources, kernels)


def built_layout(built: Layout, again: Callable[[], Layout], kernels: DeviceKernels) -> DeviceLayout:
    """Of a layout whose arrays are on the device; the host has its outline, and builds it `again` at need."""
    return sealed_layout(outline(built), dict(built.indices), built.value_sources, kernels, again)


def sealed_layout(
    layout: Layout,
    indices: dict[str, "cupy.ndarray"],
    sources: "cupy.ndarray | None",
    kernels: DeviceKernels,
    again: Callable[[], Layout] | None = None,
) -> DeviceLayout:
    """A layout of the host, and the same arrays on the device."""
    segments = [whole_array(name, array) for name, array in indices.items()]
    if sources is not None:
        segments.append(whole_array("value_sources", sources))
    sealed = SealedMemory(segments, kernels)
    sealed.seal()
    return DeviceLayout(layout, indices, sources, sealed, again)
