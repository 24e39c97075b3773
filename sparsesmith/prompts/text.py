"""The prompt for a language model that is asked in text: the contract, the format catalogue, the pattern in numbers."""

import numpy as np

from sparsesmith.elements import ELEMENTS, c_type, sum_c_type
from sparsesmith.formats import FORMATS
from sparsesmith.formats.format import (
    HEAD,
    Argument,
    Format,
    IntegerRange,
    NumberList,
    OneOf,
    ParameterSpec,
    complete_parameters,
)
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.directives import MAX_LAUNCHES
from sparsesmith.program.scratch import TYPE_BYTES
from sparsesmith_proto.kernel import Prompt, Workload

NUM_SHOWN_ROWS = 6
NUM_SHOWN_COLS = 16

_RULES = """\
Write one CUDA kernel program that computes {product} for the sparse matrix below,
as fast as possible on {architecture}.
The program is one .cu text: directive lines that begin with //@, then device code for NVRTC. No host code.
Directives:
//@ format NAME [parameter=value ...]
//@ launch KERNEL grid=EXPRESSION block=EXPRESSION [shared=BYTES] [dependency=programmatic]
//@ scratch NAME = EXPRESSION [TYPE]
There is one format line and one to {launches} launch lines, which run in order. Expressions use integers, the size
arguments below, num_sms, num_dense_cols, + - * //, ceil_div(a,b), min and max. A scratch line gives all kernels an
array of so many T (or TYPE: {types}), garbage at the start, as an argument TYPE* NAME behind the others.
With dependency=programmatic (first launch only, sm_90 and later) the kernel may start while the one before it drains:
it may read the matrix at once, must execute asm volatile("griddepcontrol.wait;" ::: "memory"); before it touches
{input}, {output} or scratch, and {input} must not be __restrict__.
Every launched kernel is extern "C" __global__ void and takes exactly these arguments: {head}, the format's own,
{tail}, its scratch.
{output} holds garbage at the start: every entry must be written. The result must hold for any values and any {input}.
T below stands for {element}.{sums} Answer with the program alone.
"""


def text_prompt(pattern: Pattern, workload: Workload, prompt: Prompt) -> str:
    """The same text for the same arguments: the trainer rebuilds it from the pattern."""
    sections = [
        _rules(workload, prompt),
        "Formats:\n" + "\n".join(_described(FORMATS[name]) for name in FORMATS),
        "A correct but slow program:\n" + _example(workload),
        _digest(pattern, prompt.sample_seed),
    ]
    if prompt.parent is not None:
        sections.append(f"Improve on this program:\n{prompt.parent.program}\nIts report:\n{prompt.parent.report}\n")
    return "\n".join(sections)


def _rules(workload: Workload, prompt: Prompt) -> str:
    operation = operation_named(workload.operation)
    inputs, outputs = operands_with_role(operation, "input"), operands_with_role(operation, "output", "inout")
    return _RULES.format(
        product=operation.formula.format(num_dense_cols=workload.num_dense_cols),
        architecture=prompt.architecture,
        launches=MAX_LAUNCHES,
        types=", ".join(TYPE_BYTES),
        head=_listed(HEAD),
        tail=_listed(tuple(operand.argument for operand in operation.operands)),
        output=", ".join(operand.name for operand in outputs),
        input=", ".join(operand.name for operand in inputs),
        element=c_type(workload.element_type),
        sums=_sums(workload),
    )


def _sums(workload: Workload) -> str:
    """What a program of 16-bit numbers must know."""
    element = ELEMENTS[workload.element_type]
    if not element.header:
        return ""
    kind = sum_c_type(workload.element_type)
    return f" Write #include <{element.header}> behind the directives, widen by {element.widen} and sum in {kind}."


def _listed(arguments: tuple[Argument, ...]) -> str:
    return ", ".join(f"{argument.c_type} {argument.name}" for argument in arguments)


def _described(format_: Format) -> str:
    ranges = []
    for name, spec in format_.parameters.items():
        ranges.append(f"{name}={_legal(spec)} (default {spec.default})")
    lines = [f"- {format_.name} {', '.join(ranges)}".rstrip()]
    for argument in format_.arguments(complete_parameters(format_, {})):
        lines.append(f"    {argument.c_type} {argument.name}: {argument.meaning}")
    return "\n".join(lines)


def _legal(spec: ParameterSpec) -> str:
    match spec:
        case IntegerRange():
            return f"{spec.low}..{spec.high}"
        case OneOf():
            return "|".join(map(str, spec.values))
        case NumberList():
            return spec.limit


def _example(workload: Workload) -> str:
    operation = operation_named(workload.operation)
    return with_element_type(operation.programs[operation.naive], workload.element_type)


def _digest(pattern: Pattern, sample_seed: int) -> str:
    lengths = pattern.row_lengths
    quantiles = np.quantile(lengths, (0, 0.25, 0.5, 0.75, 0.95, 1)).astype(int).tolist()
    offsets = pattern.col_indices.astype(np.int64) - pattern.row_indices()
    lines = [
        f"The matrix: {pattern.num_rows} rows, {pattern.num_cols} columns, {pattern.nnz} nonzeros.",
        f"Nonzeros a row: mean {lengths.mean():.2f}, standard deviation {lengths.std():.2f}; "
        f"minimum, quartiles, 95 % and maximum {quantiles}.",
        f"Offset of a nonzero from the diagonal (column - row): from {offsets.min()} to {offsets.max()}, "
        f"median distance {int(np.median(np.abs(offsets)))}; {len(np.unique(offsets))} diagonals are occupied.",
        "Some rows (row: columns):",
    ]
    random = np.random.default_rng(sample_seed)
    for row in np.sort(random.choice(pattern.num_rows, min(NUM_SHOWN_ROWS, pattern.num_rows), replace=False)):
        cols = pattern.col_indices[pattern.row_offsets[row] : pattern.row_offsets[row + 1]]
        shown = ", ".join(map(str, cols[:NUM_SHOWN_COLS].tolist()))
        lines.append(f"  {row}: {shown}{', ...' if cols.size > NUM_SHOWN_COLS else ''}")
    return "\n".join(lines) + "\n"
