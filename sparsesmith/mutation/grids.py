"""A block for each piece of work, or a grid that stays on the device and strides over them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import assert_never

from sparsesmith.mutation.child import Child, child
from sparsesmith.mutation.edits import Edit, after, before, launch_line, replaced
from sparsesmith.mutation.phrases import Phrase
from sparsesmith.mutation.subject import Kernel, Subject
from sparsesmith.program.directives import Launch
from sparsesmith.program.expression import Binary, Call, Name, Node, Number
from sparsesmith.program.restrictions.tokens import Token

BLOCKS_PER_SM = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
STRIDING = (2, 4, 8, 16)
"""Blocks a multiprocessor of a grid that is made to stride."""
_BLOCK = Phrase("blockIdx.x")
_NUMBER = "block_number"
_LOOPS = ("for", "while", "do")


def grids(subject: Subject) -> Iterator[Child]:
    """One launch with another number of resident blocks, one-shot, or striding where it was one-shot."""
    for start, end, launch in subject.launch_lines:
        kernel = next(each for each in subject.kernels if each.name == launch.kernel)
        resident = _resident(launch)
        if resident is None:
            yield from _striding(subject, kernel, launch, (start, end))
        elif subject.has(kernel, "gridDim") and len(subject.launches_of(kernel.name)) == 1:
            rest = "".join(f",{expression.text}" for expression in launch.grid[1:])
            for grid, change in resident.others():
                yield child(subject, change, [Edit(start, end, launch_line(launch, grid=grid + rest))])


@dataclass(frozen=True)
class Resident:
    """`min(work,num_sms*blocks)`."""

    work: str
    blocks: int

    def others(self) -> Iterator[tuple[str, str]]:
        for blocks in BLOCKS_PER_SM:
            if blocks != self.blocks:
                yield f"min({self.work},num_sms*{blocks})", f"resident {blocks}"
        yield self.work, "one-shot"


def _resident(launch: Launch) -> Resident | None:
    match launch.grid[0].root:
        case Call("min", (work, Binary("*", Name("num_sms"), Number(blocks)))):
            return Resident(_expression(work), blocks)
        case _:
            return None


def _striding(subject: Subject, kernel: Kernel, launch: Launch, line: tuple[int, int]) -> Iterator[Child]:
    """The kernel's body in a loop over blocks."""
    work = launch.grid[0]
    sizes = {name for name, argument in subject.arguments.items() if argument.role == "size"}
    edits = _in_a_loop(subject, kernel, _c_text(work.root)) if work.names <= sizes else None
    if edits is None or len(launch.grid) > 1 or len(subject.launches_of(kernel.name)) > 1:
        return
    for blocks in STRIDING:
        grid = launch_line(launch, grid=f"min({work.text},num_sms*{blocks})")
        yield child(subject, f"striding {blocks}", [Edit(*line, grid), *edits])


def _in_a_loop(subject: Subject, kernel: Kernel, num_blocks: str) -> list[Edit] | None:
    """None where an early end of a thread would leave others at a barrier, or the grid's size is used.

    A thread that returned goes on with its next block: it returned because its block reaches past the work, which only
    the last one does.
    """
    returns = [i for i in range(kernel.opening, kernel.closing) if subject.code[i].text == "return"]
    has_barrier = subject.has(kernel, "__syncthreads", "__shared__", "__syncwarp")
    numbers = list(_BLOCK.find(subject.code, kernel.opening, kernel.closing))
    if subject.has(kernel, "gridDim") or not numbers or (returns and has_barrier):
        return None
    if any(_is_nested(subject.code, kernel, place) for place in returns):
        return None
    opening, end = subject.code[kernel.opening], subject.code[kernel.closing]
    loop = f"\n  for (unsigned {_NUMBER} = blockIdx.x; {_NUMBER} < {num_blocks}; {_NUMBER} += gridDim.x) {{"
    return [
        after(opening, loop),
        before(end, "  __syncthreads();\n  }\n" if has_barrier else "  }\n"),
        *(replaced(subject.code[place], "continue") for place in returns),
        *(
            Edit(subject.code[found.first].start, subject.code[found.past - 1].end, _NUMBER)
            for found in numbers
        ),
    ]  # fmt: skip


def _is_nested(code: Sequence[Token], kernel: Kernel, place: int) -> bool:
    """Whether a `return` ends a function in the kernel, or stands in a loop."""
    depth = 0
    for index in range(place - 1, kernel.opening, -1):
        text = code[index].text
        depth += (text in ")]}") - (text in "([{")
        if depth < 0:
            return True
        if depth == 0 and text in _LOOPS and code[place - 1].text == ")":
            return True
        if text in (";", "}") and depth == 0:
            return False
    return False


def _expression(node: Node) -> str:
    """As a launch line says it."""
    match node:
        case Number(value):
            return str(value)
        case Name(name):
            return name
        case Binary(operator, left, right):
            return f"({_expression(left)}{operator}{_expression(right)})"
        case Call(function, arguments):
            return f"{function}({','.join(map(_expression, arguments))})"
        case _:
            assert_never(node)


def _c_text(node: Node) -> str:
    """As a kernel says it."""
    match node:
        case Number(value):
            return str(value)
        case Name(name):
            return name
        case Binary(operator, left, right):
            return f"({_c_text(left)} {'/' if operator == '//' else operator} {_c_text(right)})"
        case Call("ceil_div", (work, share)):
            return f"(({_c_text(work)} + {_c_text(share)} - 1) / {_c_text(share)})"
        case Call(function, arguments):
            return f"{function}({', '.join(map(_c_text, arguments))})"
        case _:
            assert_never(node)
