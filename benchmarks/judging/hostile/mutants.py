"""Mutants: programs of the corpus with a little changed, the good ones beside what they were before.

A mutant of a hostile program has its honest twin. Most mutants are wrong or do not compile; one that passes has done
the whole work of its twin, or was not seen.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256

from benchmarks.origin import ROOT

CORPUS = ROOT / "tests" / "kernels"
WORKLOAD = "// workload: spmv float32"
_OTHER_PATTERNS = re.compile(r"//@ format dia|index=u8")
"""These programs need another pattern than random ones."""
_NUMBER = re.compile(r"(?<![\w.\"])\d+(?![\w.\"])")
_OPERATORS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "&&": "||", "||": "&&"}
_OPERATOR = re.compile(r"(?<= )(?:<=|>=|==|!=|&&|\|\||[<>+])(?= )")
_WAIT = re.compile(
    r"__sync\w+\([^;]*\);|asm volatile\(\"[^\"]*(?:wait|bar|fence)[^\"]*\"[^;]*\);|\w+\.(?:sync|wait)\([^;]*\);"
)
_QUALIFIER = re.compile(r"\b(?:volatile|__restrict__|__align__\(\d+\)) ?")


@dataclass(frozen=True)
class Mutant:
    name: str
    program: str
    twin: str


def mutant(chance: random.Random) -> Mutant:
    """One to three changes, the first of a kind that fits the program."""
    source = chance.choice(_sources())
    text, done = source.text, []
    for _ in range(chance.choice((1, 1, 2, 3))):
        name = chance.choice(list(_CHANGES))
        changed = _CHANGES[name](text, chance)
        if changed is not None:
            text = changed
            done.append(name)
    return Mutant(" / ".join([f"mutant of {source.name}", *sorted(set(done))]), text, source.twin)


@dataclass(frozen=True)
class _Source:
    name: str
    text: str
    twin: str


@cache
def _sources() -> Sequence[_Source]:
    found = []
    for folder in ("good", "cheating", "broken"):
        for path in sorted((CORPUS / folder).glob("*.cu")):
            text = path.read_text(encoding="utf-8")
            named = re.search(r"^// twin: (\S+)", text, re.MULTILINE)
            twin = text if folder == "good" else _text(named[1]) if named else ""
            if WORKLOAD in text and WORKLOAD in twin and not _OTHER_PATTERNS.search(text + twin):
                found.append(_Source(path.stem, _program(text), _program(twin)))
    return found


def corpus_digest() -> str:
    """Of all that mutants are made of: with another corpus the same number is another mutant."""
    return sha256("\0".join(f"{each.name}\0{each.text}\0{each.twin}" for each in _sources()).encode()).hexdigest()[:12]


def _text(name: str) -> str:
    return (CORPUS / f"{name}.cu").read_text(encoding="utf-8")


def _program(text: str) -> str:
    """Without the lines that say what is expected."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("// "))


Change = Callable[[str, random.Random], str | None]


def _places(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Within the code."""
    begin = text.index("//@ launch") if "//@ launch" in text else 0
    return list(pattern.finditer(text, text.find("\n", begin)))


def _with(found: re.Match[str], new: str) -> str:
    return found.string[: found.start()] + new + found.string[found.end() :]


def _other_number(text: str, chance: random.Random) -> str | None:
    places = _places(_NUMBER, text)
    if not places:
        return None
    found = chance.choice(places)
    value = int(found[0])
    return _with(found, str(chance.choice((0, 1, value + 1, max(value - 1, 0), 2 * value, value // 2))))


def _other_operator(text: str, chance: random.Random) -> str | None:
    places = _places(_OPERATOR, text)
    found = chance.choice(places) if places else None
    return None if found is None else _with(found, _OPERATORS[found[0]])


def _without_a_wait(text: str, chance: random.Random) -> str | None:
    places = _places(_WAIT, text)
    return _with(chance.choice(places), ";") if places else None


def _without_a_qualifier(text: str, chance: random.Random) -> str | None:
    places = _places(_QUALIFIER, text)
    return _with(chance.choice(places), "") if places else None


def _without_a_line(text: str, chance: random.Random) -> str | None:
    lines = text.split("\n")
    inner = [index for index, line in enumerate(lines) if line.startswith("  ") and line.rstrip().endswith(";")]
    return "\n".join(lines[:index] + lines[index + 1 :]) if inner and (index := chance.choice(inner)) else None


def _line_moved(text: str, chance: random.Random) -> str | None:
    lines = text.split("\n")
    inner = [index for index, line in enumerate(lines) if line.startswith("  ") and line.rstrip().endswith(";")]
    if len(inner) < 2:
        return None
    index, other = chance.sample(inner, 2)
    lines[index], lines[other] = lines[other], lines[index]
    return "\n".join(lines)


def _work_in_some_blocks(text: str, chance: random.Random) -> str | None:
    lines = text.split("\n")
    inner = [index for index, line in enumerate(lines) if line.startswith("  ") and line.rstrip().endswith(";")]
    if not inner:
        return None
    lines.insert(chance.choice(inner), f"  if (blockIdx.x % {chance.randint(2, 9)} == {chance.randint(0, 1)}) return;")
    return "\n".join(lines)


_CHANGES: dict[str, Change] = {
    "another number": _other_number,
    "another operator": _other_operator,
    "a wait left out": _without_a_wait,
    "a qualifier left out": _without_a_qualifier,
    "a line left out": _without_a_line,
    "a line moved": _line_moved,
    "blocks left out": _work_in_some_blocks,
}
