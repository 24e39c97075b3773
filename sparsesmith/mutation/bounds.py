"""How many registers a thread may have: by resident blocks, or by their number."""

from collections.abc import Iterator

from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit
from sparsesmith.mutation.subject import Kernel, Subject

MOST_RESIDENT_THREADS = 2048
REGISTERS = 65536
"""Of a multiprocessor, as its resident threads."""
MIN_BLOCKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
MAX_REGISTERS = (24, 32, 40, 48, 56, 64, 80, 96, 128, 168)


def bounds(subject: Subject) -> Iterator[Child]:
    """One kernel's bounds another way; only where its block is a number."""
    for kernel in subject.kernels:
        threads = _threads(subject, kernel)
        if kernel.bounds is None or threads is None:
            continue
        for change, attribute in _attributes(threads):
            edit = _edit(subject, kernel.bounds, attribute)
            if subject.text[edit.start : edit.end] != attribute:
                yield child(subject, change, [edit])


def _threads(subject: Subject, kernel: Kernel) -> int | None:
    blocks = {launch.block for _, _, launch in subject.launches_of(kernel.name)}
    if len(blocks) != 1 or any(expression.names for expression in next(iter(blocks))):
        return None
    threads = 1
    for expression in next(iter(blocks)):
        threads *= expression.evaluate({})
    return threads


def _attributes(threads: int) -> Iterator[tuple[str, str]]:
    yield "no bound", f"__launch_bounds__({threads})"
    for number in MIN_BLOCKS:
        if number * threads <= MOST_RESIDENT_THREADS:
            yield f"min blocks {number}", f"__launch_bounds__({threads}, {number})"
    for number in MAX_REGISTERS:
        if number * threads <= REGISTERS:
            yield f"registers {number}", f"__maxnreg__({number})"


def _edit(subject: Subject, bounds: tuple[int, int], attribute: str) -> Edit:
    return Edit(subject.code[bounds[0]].start, subject.code[bounds[1] - 1].end, attribute)
