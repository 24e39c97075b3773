"""What a second direction costs beside the first: memory of a GPU."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np

from sparsesmith.artifacts.running import running_program
from sparsesmith.elements import ELEMENTS
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.format import Layout
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.api import KernelReport


def extra_bytes(problems: Sequence[Problem], reports: Sequence[KernelReport]) -> int:
    """Of the last direction, beside the first: arrays that both read count once, and so do values in the same order.
    A routine of the library reads CSR. 0 where both are one."""
    if len(problems) == 1:
        return 0
    first, last = (_arrays(problem, report) for problem, report in zip(problems, reports, strict=True))
    return sum(num_bytes for content, num_bytes in last.items() if content not in first)


def _arrays(problem: Problem, report: KernelReport) -> Mapping[str, int]:
    """Bytes of each array that a direction holds, by what it says."""
    layout, width = _layout(problem, report), ELEMENTS[problem.element_type].num_bytes
    found = {_digest(array): int(array.nbytes) for array in layout.indices.values()}
    sources = layout.value_sources
    order = f"{problem.pattern.digest} in its own order" if sources is None else _digest(sources)
    columns = problem.workload.num_dense_cols
    scratch = sum(layout.scratch.values()) * columns * width
    return found | {f"values: {order}": layout.num_slots * width, "scratch": scratch}


def _layout(problem: Problem, report: KernelReport) -> Layout:
    if (text := running_program(report)) is not None:
        program = parse_program(text, problem.workload.operation, problem.element_type)
        return build_layout(program.format, program.parameters, problem.pattern, problem.values)
    csr = format_named("csr")
    return csr.build(problem.pattern, complete_parameters(csr, {}))


def _digest(array: "np.ndarray") -> str:
    head = f"{array.dtype} {array.shape} "
    return head + hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).hexdigest()
