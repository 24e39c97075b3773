"""An operator as the sections of a file: report, matrix, storage format, machine code."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse
from pydantic import BaseModel, ConfigDict, ValidationError

from sparsesmith.elements import dtype_of
from sparsesmith.formats.format import Layout
from sparsesmith.operator.file import Sections, damaged, read_sections, refused_file, write_sections
from sparsesmith.operator.image import as_bytes
from sparsesmith.operator.parts import Parts
from sparsesmith_proto.api import KernelReport
from sparsesmith_proto.message import Architecture

_INDEX = "index."
_SOURCES = "value_sources"
_MATRIX = ("row_offsets", "col_indices")


class _StoredLayout(BaseModel):
    """A `Layout` without its arrays, which are sections."""

    model_config = ConfigDict(extra="forbid")

    sizes: dict[str, int]
    num_slots: int
    scratch: dict[str, int]
    index_types: dict[str, str]


class _Head(BaseModel):
    """Section `head`. A later release may know more: what is unknown here is left out."""

    architecture: Architecture | None
    is_transposed: bool
    layout: _StoredLayout | None


@dataclass(frozen=True)
class Saved:
    """What a file holds."""

    report: KernelReport
    matrix: scipy.sparse.csr_matrix
    """Values in the operator's element type."""
    parts: Parts
    is_transposed: bool = False
    """Whether it was the view A^T that was saved."""
    transposed: KernelReport | None = None
    """Of A^T, where it was tuned as well."""


def write_saved(path: Path, saved: Saved, beside: Sections) -> None:
    """With sections for the C library `beside`. Raises OSError."""
    parts, matrix = saved.parts, saved.matrix
    head = _Head(
        architecture=parts.architecture,
        is_transposed=saved.is_transposed,
        layout=None if parts.layout is None else _stored(parts.layout),
    )
    arrays = {"row_offsets": matrix.indptr.astype("<i4"), "col_indices": matrix.indices.astype("<i4")}
    write_sections(
        path,
        {
            "head": head.model_dump_json().encode(),
            "report": saved.report.model_dump_json().encode(),
            **({} if saved.transposed is None else {"T.report": saved.transposed.model_dump_json().encode()}),
            **{name: as_bytes(array) for name, array in {**arrays, "values": matrix.data}.items()},
            **({} if parts.layout is None else _layout_arrays(parts.layout)),
            **({"cubin": parts.cubin} if parts.cubin else {}),
            **beside,
        },
    )


def read_saved(path: Path) -> Saved:
    """Raises InvalidInput for a file that cannot be read, with the reason; OSError."""
    sections = read_sections(path)
    for name in ("head", "report", *_MATRIX, "values"):
        if name not in sections:
            raise damaged(path, f"section {name}")
    try:
        head = _Head.model_validate_json(bytes(sections["head"]))
        report = KernelReport.model_validate_json(bytes(sections["report"]))
        backward = sections.get("T.report")
        transposed = None if backward is None else KernelReport.model_validate_json(bytes(backward))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise refused_file(path, f"is of another release: {where}: {first['msg']}", where, "this release's") from error
    layout = None if head.layout is None else _layout(head.layout, sections)
    cubin = bytes(sections.get("cubin", b""))
    parts = Parts(layout, cubin, head.architecture)
    return Saved(report, _matrix(report, sections), parts, head.is_transposed, transposed)


def _matrix(report: KernelReport, sections: Mapping[str, memoryview]) -> scipy.sparse.csr_matrix:
    offsets, columns = (np.frombuffer(sections[name], "<i4") for name in _MATRIX)
    values = np.frombuffer(sections["values"], dtype_of(report.workload.element_type))
    return scipy.sparse.csr_matrix((values.copy(), columns, offsets), shape=(report.num_rows, report.num_cols))


def _stored(layout: Layout) -> _StoredLayout:
    return _StoredLayout(
        sizes=dict(layout.sizes),
        num_slots=layout.num_slots,
        scratch=dict(layout.scratch),
        index_types={name: array.dtype.name for name, array in layout.indices.items()},
    )


def _layout_arrays(layout: Layout) -> dict[str, memoryview]:
    arrays = {_INDEX + name: as_bytes(array) for name, array in layout.indices.items()}
    return arrays if layout.value_sources is None else {**arrays, _SOURCES: as_bytes(layout.value_sources)}


def _layout(stored: _StoredLayout, sections: Mapping[str, memoryview]) -> Layout:
    indices = {name: np.frombuffer(sections[_INDEX + name], kind) for name, kind in stored.index_types.items()}
    sources = np.frombuffer(sections[_SOURCES], "<i4") if _SOURCES in sections else None
    return Layout(stored.sizes, indices, sources, stored.num_slots, stored.scratch)
