"""The dense operand copied to shared memory by every block, where it fits."""

from collections.abc import Iterator

from sparsesmith.elements import ELEMENTS, c_type
from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit, after, launch_line, replaced
from sparsesmith.mutation.hints import reads_of
from sparsesmith.mutation.subject import Kernel, Subject, is_named
from sparsesmith.mutation.waits import WAIT

MOST_BYTES = 180 * 1024
"""Of the 227 KiB that a block may have; the rest is for what the kernel declares itself."""
UNROLLS = (1, 4, 8)
STAGED = "staged"


def staging(subject: Subject) -> Iterator[Child]:
    """The kernel that reads the operand, with a copy of it in shared memory."""
    if subject.matrix is None:
        return
    operand = next(each for each in subject.arguments.values() if each.role == "input")
    num_elements = subject.pattern.num_cols * subject.num_dense_cols
    num_bytes = num_elements * ELEMENTS[subject.element_type].num_bytes
    readers = [kernel for kernel in subject.kernels if subject.has(kernel, operand.name)]
    if num_bytes > MOST_BYTES or len(readers) != 1 or STAGED in subject.text:
        return
    lines = subject.launches_of(readers[0].name)
    if len(lines) != 1 or lines[0][2].shared.text != "0" or subject.has(readers[0], "extern"):
        return
    start, end, launch = lines[0]
    for unroll in UNROLLS:
        edits = [
            Edit(start, end, launch_line(launch, shared=str(num_bytes))),
            after(subject.code[readers[0].opening], _copy(subject, operand.name, num_elements, unroll)),
            *_staged(subject, readers[0], operand.name),
        ]
        yield child(subject, f"stage {operand.name}, {unroll} at a time", edits)


def _copy(subject: Subject, operand: str, num_elements: int, unroll: int) -> str:
    """First of all: no thread has left by then. A wait that comes again has nothing to wait for."""
    lines = [f"extern __shared__ __align__(16) {c_type(subject.element_type)} {STAGED}[];"]
    lines += [WAIT] if subject.starts_early else []
    lines += [
        f"#pragma unroll {unroll}",
        f"for (int i = threadIdx.x; i < {num_elements}; i += blockDim.x) {STAGED}[i] = {operand}[i];",
        "__syncthreads();",
    ]
    return "".join(f"\n  {line}" for line in lines)


def _staged(subject: Subject, kernel: Kernel, operand: str) -> Iterator[Edit]:
    """Its name is the copy's, and load functions, which are for global memory, are plain reads."""
    for read in reads_of(subject, kernel):
        if read.array == operand and read.brackets is None:
            yield replaced(read.opening, "*")
    for place in range(kernel.opening, kernel.closing):
        if is_named(subject.code, place, (operand,)):
            yield replaced(subject.code[place], STAGED)
