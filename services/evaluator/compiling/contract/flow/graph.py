"""Which instruction may follow which in a function: branches to the labels that their scope sees."""

from collections.abc import Mapping, Sequence

from services.evaluator.ptx import Function
from services.evaluator.ptx.module import Instruction

Path = tuple[int, ...]
"""Numbers of the scopes around a statement, the outermost first."""

Edges = Sequence[Sequence[int | None]]
"""By the number of an instruction, those that may follow it, the fall-through last; None for out of the function."""


def edges_of(function: Function) -> Edges:
    labels, tables, paths = _places(function)

    def of_label(name: str, path: Path) -> list[int | None]:
        """In the innermost scope that has it: assembly that is inlined twice has its labels twice."""
        for depth in range(len(path), -1, -1):
            if (path[:depth], name) in labels:
                return [labels[path[:depth], name]]
        return []

    def after(index: int, instruction: Instruction) -> list[int | None]:
        goes: list[int | None]
        match instruction.opcode[0]:
            case "bra":
                goes = of_label(instruction.operands[0], paths[index])
            case "brx":
                listed = tables.get(instruction.operands[-1])
                names = {name for _, name in labels} if listed is None else dict.fromkeys(listed)
                goes = [target for name in names for target in of_label(name, paths[index])]
            case "ret":
                goes = [None]
            case "exit" | "trap":
                goes = []
            case _:
                return [index + 1]
        return [*goes, index + 1] if instruction.guard else goes

    return [after(index, instruction) for index, instruction in enumerate(function.instructions)]


def _places(function: Function) -> tuple[Mapping[tuple[Path, str], int], Mapping[str, Sequence[str]], Sequence[Path]]:
    """Where labels stand, what the tables of indexed branches list, and the scopes around each instruction."""
    labels: dict[tuple[Path, str], int] = {}
    tables: dict[str, Sequence[str]] = {}
    paths: list[Path] = []
    path: Path = ()
    number, last = 0, ""
    for statement in function.body or ():
        match statement.kind:
            case "open":
                path = (*path, number)
                number += 1
            case "close":
                path = path[:-1]
            case "label":
                labels[path, statement.text] = len(paths)
                last = statement.text
            case "targets":
                tables[last] = [name.strip() for name in statement.text.partition(" ")[2].split(",")]
            case "instruction":
                paths.append(path)
    return labels, tables, paths
