"""Threads of a block, where their number counts threads alone: `blockIdx.x * 256 + threadIdx.x`, `ceil_div(n,256)`."""

from collections.abc import Iterator

from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit, launch_line, replaced
from sparsesmith.mutation.phrases import Phrase
from sparsesmith.mutation.subject import Kernel, Subject
from sparsesmith.program.directives import Launch
from sparsesmith.program.expression import Call, Number
from sparsesmith.program.restrictions.tokens import Token

THREADS = (32, 64, 128, 256, 512, 1024)
_THREAD = Phrase("blockIdx.x * THREADS + threadIdx.x")


def blocks(subject: Subject) -> Iterator[Child]:
    """One kernel with blocks of another size, in its launch line, its bounds and its code."""
    for start, end, launch in subject.launch_lines:
        kernel = next(each for each in subject.kernels if each.name == launch.kernel)
        number = _number(launch)
        if number is None or len(subject.launches_of(kernel.name)) > 1:
            continue
        written = _written(subject, kernel, number)
        for threads in THREADS if written else ():
            if threads != number:
                grid = f"{launch.grid[0].text.rpartition(',')[0]},{threads})"
                line = launch_line(launch, grid=grid, block=str(threads))
                edits = [Edit(start, end, line), *(replaced(token, str(threads)) for token in written)]
                yield child(subject, f"block {threads}", edits)


def _number(launch: Launch) -> int | None:
    """Threads of a block where the grid is as many blocks as that takes; None: they are something else."""
    if len(launch.grid) > 1 or len(launch.block) > 1:
        return None
    match launch.grid[0].root, launch.block[0].root:
        case Call("ceil_div", (_, Number(share))), Number(threads) if share == threads:
            return threads
        case _:
            return None


def _written(subject: Subject, kernel: Kernel, number: int) -> list[Token]:
    """Where the kernel has the number; nothing where it stands for something else too, or blocks share anything."""
    if subject.has(kernel, "__shared__", "blockDim", "gridDim"):
        return []
    found = _THREAD.find(subject.code, kernel.opening, kernel.closing)
    counted = [each.places["THREADS"] for each in found]
    every = [token for token in subject.code[kernel.opening : kernel.closing] if token.text == str(number)]
    if [token.start for token in counted] != [token.start for token in every]:
        return []
    first, past = kernel.bounds or (0, 0)
    return counted + [token for token in subject.code[first:past] if token.text == str(number)]
