"""Which arguments a compiled kernel writes to: A, its indices and the dense operand are for reading only.

A flow of pointers through the PTX: a register points into an argument where it was loaded from that parameter or
computed from a register that does; what is loaded from memory points nowhere. Checked before the kernel runs, because a
write that is undone before the kernel ends leaves no trace that a checksum could show.

What this does not protect against: an address that is computed from another buffer's, or from numbers. Such a write
lies outside its own buffer's bounds; guards, checksums and the interpreter's memory checker are there for it.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)[^{]*\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+\S+(?:\s+\.ptr[^,]*?)?\s+([\w$]+)\s*(?:,|$)|\.param[^,]*?([\w$]+)\s*(?:,|$)")
_BRACE = re.compile(r"[{}]")
_REGISTER = re.compile(r"%[A-Za-z_][\w$]*")
_ADDRESS = re.compile(r"\[\s*(%[A-Za-z_][\w$]*)[^\]]*\]")
_STORES = re.compile(r"(?:st|red|atom|discard|multimem|cp\.async\.bulk\.global|cp\.reduce)\b")
_SPACES_OF_ITS_OWN = re.compile(r"\.(?:shared|local|param)\b")
_POINTER_LOAD = re.compile(r"ld\.param\.[bu]64\s+(%[\w$]+)\s*,\s*\[\s*([\w$]+)\s*\]")


def written_parameters(ptx: str) -> dict[str, set[int]]:
    """For each kernel, positions of the parameters that it writes through and through no other at the same place."""
    written = {}
    for entry in _ENTRY.finditer(ptx):
        names = [found[1] or found[2] for found in _PARAMETER.finditer(entry[2])]
        written[entry[1]] = _written(list(_statements(_body(ptx, entry.end()))), names)
    return written


def _body(ptx: str, start: int) -> str:
    depth = 1
    for brace in _BRACE.finditer(ptx, start):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return ptx[start : brace.start()]
    return ptx[start:]


def _statements(body: str) -> Iterator[str]:
    """Instructions without guards and comments."""
    for statement in re.split(r"[;\n]", re.sub(r"//[^\n]*", "", body)):
        plain = re.sub(r"^\s*(?:[\w$]+:)?\s*(?:@!?%[\w$]+\s+)?", "", statement).strip()
        if plain and not plain.startswith("."):
            yield plain


def _written(statements: Sequence[str], parameters: Sequence[str]) -> set[int]:
    positions = {name: position for position, name in enumerate(parameters)}
    sources: defaultdict[str, set[int]] = defaultdict(set)
    users: list[tuple[str, list[str]]] = []
    for statement in statements:
        loaded = _POINTER_LOAD.match(statement)
        if loaded and loaded[2] in positions:
            sources[loaded[1]].add(positions[loaded[2]])
        elif not re.match(r"(?:ld|tex|atom|st|red|bra|bar|ret|setp)\b", statement):
            target, *operands = _REGISTER.findall(statement) or [""]
            if operands:
                users.append((target, operands))
    changed = True
    while changed:
        changed = False
        for target, operands in users:
            found = set().union(*(sources[operand] for operand in operands))
            if not found <= sources[target]:
                sources[target] |= found
                changed = True
    return _stored_through(statements, sources)


def _stored_through(statements: Sequence[str], sources: defaultdict[str, set[int]]) -> set[int]:
    """An address that may lie in either of two arguments counts for neither."""
    written: set[int] = set()
    for statement in statements:
        opcode = statement.split(None, 1)[0]
        address = _ADDRESS.search(statement)
        if address and _STORES.match(opcode) and not _SPACES_OF_ITS_OWN.search(opcode):
            pointed = sources[address[1]]
            if len(pointed) == 1:
                written |= pointed
    return written
