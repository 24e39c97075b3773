"""Numbers that a program leaves open, and the text with them filled in.

    //@ let WIDTH = row_length_max                  a fact of the matrix, of its stored form, of the device
    //@ let HALF = ceil_div(row_length_max,2)       or what follows from facts
    //@ tune BLOCK = 64 128 256                     a knob: what only measuring can tell
    //@ pick shift place slot = bins[warp]          in a kernel: variables of the bin that a warp lies in

A name stands for its number wherever it is a word of its own, in directives (but for the keys of KEY=VALUE) and in the
code, not inside quotes. What comes out is a program of plain numbers, without these lines.
"""

import math
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import NoReturn

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import MAX_OFFSET, ParameterValue
from sparsesmith.program.directives import DEVICE_NAMES, PREFIX, is_directive, stored_form
from sparsesmith.program.expression import parse_expression
from sparsesmith.program.facts import FACTS, FORMULAS, MAX_TABLE, TABLES, Asked, Circumstances, StoredForm, Value
from sparsesmith.program.signature import signature_of
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS, ElementType, Operation

MAX_LETS = 24
MAX_KNOBS = 6
MAX_KNOB_VALUES = 64
MAX_NAME_CHARACTERS = 64
MAX_PICKS = 4
MAX_LISTED = 4096
"""Settings that a search chooses from."""

Settings = Mapping[str, ParameterValue]
"""Knob -> value."""

_OPEN = re.compile(r"^[ \t]*//@[ \t]*(?:let|tune|pick)\b", re.MULTILINE)
_OF_FORMAT = re.compile(r"[ \t]*//@[ \t]*(?:format|task|values)\b")
_NAMED = re.compile(r"([^=]*)=(.*)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KNOB_VALUE = re.compile(r"[A-Za-z0-9_]{1,64}", re.ASCII)
_FORMULA = re.compile(r"([a-z_]+)\(([^()]*)\)")
_PICK = re.compile(r"([a-z_ ]+)=\s*([A-Za-z_]\w*)\s*\[\s*([A-Za-z_]\w*)\s*\]", re.ASCII)
_WORDS = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'|(?<![\w.])[A-Za-z_]\w*(?P<key>(?=\s*=(?!=)))?', re.ASCII
)
_RESERVED = frozenset(
    word
    for words in (
        "alignas asm auto bool break case char const constexpr continue default do double else enum extern false",
        "float for half if inline int long namespace operator register return short signed sizeof static struct",
        "switch template true typedef typename union unsigned using void volatile while threadIdx blockIdx",
        "blockDim gridDim warpSize format task launch require values scratch let tune pick ceil_div min max",
    )
    for word in words.split()
)
"""Words of directives and of the language: no name of a number."""


@dataclass(frozen=True)
class Knob:
    """A number or a word that is to be found by measuring."""

    name: str
    values: tuple[ParameterValue, ...]
    """The first is taken where nothing else is said."""
    line: int


@dataclass(frozen=True)
class Bound:
    """A program of plain numbers."""

    text: str
    in_place: str
    """The same with an empty line for each that is gone, and no line more: lines count as in the text as written."""


@dataclass(frozen=True)
class _Line:
    """A `let`, `tune` or `pick` line."""

    number: int
    keyword: str
    name: str
    """What stands before the equals sign."""
    rest: str


def is_open(text: str) -> bool:
    """Whether a text leaves numbers open."""
    return _OPEN.search(text) is not None


def knobs_of(text: str) -> tuple[Knob, ...]:
    """In the order of the text. Raises InvalidProgram for a malformed or repeated one, or too many."""
    lines = [line for line in _open_lines(text) if line.keyword == "tune"]
    if len(lines) > MAX_KNOBS:
        _refuse(lines[MAX_KNOBS].number, f"{len(lines)} knobs", "tune", len(lines), f"at most {MAX_KNOBS}")
    _check_names([line for line in _open_lines(text) if line.keyword != "pick"])
    return tuple(map(_knob, lines))


def num_settings(knobs: tuple[Knob, ...]) -> int:
    return math.prod(len(knob.values) for knob in knobs)


def settings_of(knobs: tuple[Knob, ...]) -> Iterator[dict[str, ParameterValue]]:
    """Every combination, that of first values first, the last knob changing fastest."""
    for values in product(*(knob.values for knob in knobs)):
        yield {knob.name: value for knob, value in zip(knobs, values, strict=True)}


def listed_settings(knobs: tuple[Knob, ...], most: int = MAX_LISTED) -> list[dict[str, ParameterValue]]:
    """Every combination; of more than `most` the first and others chosen at random, the same for the same knobs."""
    count = num_settings(knobs)
    if count <= most:
        return list(settings_of(knobs))
    others = random.Random(repr(knobs)).sample(range(1, count), most - 1)
    return [_setting(knobs, number) for number in (0, *sorted(others))]


def _setting(knobs: tuple[Knob, ...], number: int) -> dict[str, ParameterValue]:
    """One combination by its place among all."""
    chosen: dict[str, ParameterValue] = {}
    for knob in reversed(knobs):
        number, place = divmod(number, len(knob.values))
        chosen[knob.name] = knob.values[place]
    return {knob.name: chosen[knob.name] for knob in knobs}


def set_knobs(text: str, settings: Settings) -> str:
    """The text without its knobs; one that `settings` leaves out has its first value.

    Raises InvalidProgram for a setting that no knob has, and as `knobs_of`.
    """
    return "\n".join(line for line in _with_knobs(text, settings) if line is not None)


def bind_numbers(
    text: str,
    settings: Settings,
    circumstances: Circumstances,
    operation: Operation,
    element_type: ElementType,
) -> Bound:
    """The text with knobs set and every fact filled in; as it is where it leaves nothing open.

    Raises InvalidProgram with the line, the value and the limit.
    """
    if not is_open(text):
        if settings:
            set_knobs(text, settings)
        return Bound(text, text)
    filling = _Filling(_with_knobs(text.replace("\r\n", "\n"), settings), circumstances)
    filling.find_facts()
    filling.check_shadows(operation, element_type, knobs_of(text))
    return filling.bound()


def comes_to(
    text: str, plain: str, circumstances: Circumstances, operation: Operation, element_type: ElementType
) -> bool:
    """Whether a text, its facts filled in and its knobs at their first values, is that program of plain numbers."""
    try:
        return bind_numbers(text, {}, circumstances, operation, element_type).text == plain
    except InvalidProgram:
        return False


class _Filling:
    """Facts found one after another, each free to depend on those before."""

    def __init__(self, lines: list[str | None], circumstances: Circumstances) -> None:
        """`lines`: None where one is gone already."""
        self._lines = lines
        self._asked = Asked(circumstances, self._stored)
        self._open = {line.number: line for line in _open_lines("\n".join(line or "" for line in lines))}
        self._found: dict[str, Value] = {}
        self._read: tuple[str, StoredForm] | None = None
        """The format line that was read last, and what it says."""

    def find_facts(self) -> None:
        for keyword, most in (("let", MAX_LETS), ("pick", MAX_PICKS)):
            of_keyword = [line for line in self._open.values() if line.keyword == keyword]
            if len(of_keyword) > most:
                count = len(of_keyword)
                _refuse(of_keyword[most].number, f"{count} {keyword} lines", keyword, count, f"at most {most}")
        for line in (line for line in self._open.values() if line.keyword == "let"):
            self._found[line.name] = self._value(line)

    def check_shadows(self, operation: Operation, element_type: ElementType, knobs: tuple[Knob, ...]) -> None:
        """Raises InvalidProgram where a name is that of an argument, or of a size that launch lines know."""
        stored = self._stored()
        arguments = signature_of(stored.format, stored.parameters, operation, element_type)
        taken = {*(argument.name for argument in arguments), *DEVICE_NAMES, *self._asked.circumstances.axes}
        lets = [(line.name, line.number) for line in self._open.values() if line.keyword == "let"]
        for name, number in [*lets, *((knob.name, knob.line) for knob in knobs)]:
            if name in taken:
                reason = f"{name} is an argument of the kernels or a size of launch lines"
                _refuse(number, reason, "name", name, f"another name than {', '.join(sorted(taken))}")

    def bound(self) -> Bound:
        pieces, size = [], 0
        for number, line in enumerate(self._lines, start=1):
            pieces.append(self._lines_for(number, line))
            size += sum(len(piece) + 1 for piece in pieces[-1])
            _check_size(size)
        return Bound("\n".join(line for piece in pieces for line in piece), "\n".join(map(" ".join, pieces)))

    def _lines_for(self, number: int, line: str | None) -> list[str]:
        """What a line becomes: itself filled in, several for `pick`, none where it only gave a name."""
        open_line = self._open.get(number)
        if line is None or (open_line is not None and open_line.keyword != "pick"):
            return []
        if open_line is None:
            return [self._filled(line)]
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        return [indent + statement for statement in self._picked(open_line)]

    def _filled(self, line: str) -> str:
        return _replaced(line, self._found)

    def _stored(self) -> StoredForm:
        """What the format line, or the task line, says with what is known so far."""
        of_format = [line if line is not None and _OF_FORMAT.match(line) else "" for line in self._lines]
        filled = "\n".join(map(self._filled, of_format))
        if self._read is None or self._read[0] != filled:
            self._read = filled, StoredForm(*stored_form(filled))
        return self._read[1]

    def _value(self, line: _Line) -> Value:
        text = _replaced(line.rest, self._found, as_code=False).strip()
        try:
            value = self._formula(line, text) or self._fact(line, text) or self._computed(line, text)
        except InvalidProgram as error:
            if error.message.startswith("line "):
                raise
            raise InvalidProgram(
                f"line {line.number}: let {line.name}: {error.message}",
                field=error.field,
                value=error.value,
                limit=error.limit,
            ) from error
        return _within_limits(line, value)

    def _formula(self, line: _Line, text: str) -> Value | None:
        """A table that depends on numbers of the program."""
        match = _FORMULA.fullmatch(text)
        formula = FORMULAS.get(match[1]) if match else None
        if match is None or formula is None:
            return None
        words = [word.strip() for word in match[2].split(",")]
        given = [int(word) for word in words if word.isdecimal() and len(word) < 10]
        limits = list(formula.arguments.values())
        is_legal = len(given) == len(words) == len(limits)
        if not is_legal or any(not low <= n <= high for n, (low, high) in zip(given, limits, strict=True)):
            wanted = ", ".join(f"{name} {low}..{high}" for name, (low, high) in formula.arguments.items())
            _refuse(line.number, f"{text} does not fit", "let", text, f"{match[1]}({wanted})")
        return formula.find(self._asked.matrix, tuple(given))

    def _fact(self, line: _Line, text: str) -> tuple[int, ...] | None:
        """A fact that is a table: nothing can be computed from it."""
        if text not in FACTS:
            return None
        value = FACTS[text].find(self._asked)
        return value if isinstance(value, tuple) else None

    def _computed(self, line: _Line, text: str) -> int:
        expression = parse_expression(text)
        sizes: dict[str, int] = {}
        axes = self._asked.circumstances.axes
        for name in sorted(expression.names):
            if name in axes:
                sizes[name] = axes[name]
                continue
            if name not in FACTS:
                _refuse(line.number, f"unknown fact {name!r}", "let", name, ", ".join([*axes, *FACTS, *FORMULAS]))
            value = FACTS[name].find(self._asked)
            if isinstance(value, tuple):
                _refuse(line.number, f"{name} is a table, which nothing is computed from", "let", name, "a number")
            sizes[name] = value
        return expression.evaluate(sizes)

    def _picked(self, line: _Line) -> list[str]:
        """Variables declared for the last bin, and set for the others."""
        match = _PICK.fullmatch(f"{line.name}={line.rest}".strip())
        if match is None or match[2] not in TABLES:
            _refuse(
                line.number, f"pick {line.name}={line.rest} is malformed", "pick", line.rest,
                f"pick COLUMN ... = TABLE[VARIABLE], tables: {', '.join(TABLES)}",
            )  # fmt: skip
        prefix, names = TABLES[match[2]], match[1].split()
        known = [fact.removeprefix(prefix) for fact in FACTS if fact.startswith(prefix)]
        if unknown := [name for name in names if name not in known]:
            _refuse(line.number, f"{match[2]} has no column {unknown[0]!r}", "pick", unknown[0], ", ".join(known))
        columns = [self._column(line, prefix + name) for name in names]
        ends = self._column(line, f"{prefix}past_warp")
        rows = [
            ", ".join(f"{name} = {value}" for name, value in zip(names, row, strict=True))
            for row in zip(*columns, strict=True)
        ]
        chain = [
            f"{'else ' if place else ''}if ({match[3]} < {end}) {row};"
            for place, (end, row) in enumerate(zip(ends[:-1], rows[:-1], strict=True))
        ]
        return [f"int {rows[-1]};", *chain]

    def _column(self, line: _Line, name: str) -> tuple[int, ...]:
        try:
            value = FACTS[name].find(self._asked)
        except InvalidProgram as error:
            _refuse(line.number, error.message, error.field or "pick", error.value, error.limit)
        assert isinstance(value, tuple)
        return value


def _open_lines(text: str) -> list[_Line]:
    """Raises InvalidProgram for one without an equals sign."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if _OPEN.match(line):
            keyword, _, rest = line.strip()[len(PREFIX) :].strip().replace("\t", " ").partition(" ")
            match = _NAMED.fullmatch(rest)
            if match is None:
                _refuse(number, f"{keyword} {rest.strip()} has no =", keyword, rest.strip(), f"{keyword} NAME = ...")
            found.append(_Line(number, keyword, match[1].strip(), match[2].strip()))
    return found


def _check_names(lines: list[_Line]) -> None:
    """Raises InvalidProgram for a name that is none, is taken by the language, or is used twice."""
    seen: dict[str, int] = {}
    for line in lines:
        is_name = _NAME.fullmatch(line.name) and len(line.name) <= MAX_NAME_CHARACTERS
        if not is_name or line.name in _RESERVED or line.name.startswith("__"):
            limit = f"an identifier of at most {MAX_NAME_CHARACTERS} characters that means nothing else"
            _refuse(line.number, f"{line.name!r} cannot be a name", line.keyword, line.name, limit)
        if line.name in seen:
            reason = f"{line.name} was named in line {seen[line.name]} already"
            _refuse(line.number, reason, line.keyword, line.name, "each name once")
        seen[line.name] = line.number


def _knob(line: _Line) -> Knob:
    words = line.rest.split()
    if not 1 <= len(words) <= MAX_KNOB_VALUES:
        _refuse(line.number, f"knob {line.name} has {len(words)} values", "tune", len(words), f"1..{MAX_KNOB_VALUES}")
    for word in words:
        if not _KNOB_VALUE.fullmatch(word):
            _refuse(line.number, f"{word!r} is no value of a knob", "tune", word, "a whole number or a word")
    if len(set(words)) < len(words):
        repeated = next(word for place, word in enumerate(words) if word in words[:place])
        _refuse(line.number, f"knob {line.name} has {repeated} twice", "tune", repeated, "each value once")
    return Knob(line.name, tuple(int(word) if _is_number(word) else word for word in words), line.number)


def _is_number(word: str) -> bool:
    return word.isdecimal() and word == str(int(word)) and int(word) <= MAX_OFFSET


def _with_knobs(text: str, settings: Settings) -> list[str | None]:
    """The lines with knobs set, None where one was. Raises InvalidProgram for a setting that no knob has."""
    knobs = {knob.name: knob for knob in knobs_of(text)}
    for name, value in settings.items():
        if name not in knobs or value not in knobs[name].values:
            known = knobs[name].values if name in knobs else knobs
            raise InvalidProgram(
                f"no knob {name} with the value {value} (known: {', '.join(map(str, known)) or 'none'})",
                field=name,
                value=value,
                limit=", ".join(map(str, known)),
            )
    chosen = {name: settings.get(name, knob.values[0]) for name, knob in knobs.items()}
    gone = {knob.line for knob in knobs.values()}
    return [
        None if number in gone else _replaced(line, chosen) for number, line in enumerate(text.split("\n"), start=1)
    ]


def _replaced(line: str, numbers: Mapping[str, Value | str], *, as_code: bool | None = None) -> str:
    """The line with names replaced: tables joined by commas, in code with a space after each."""
    if not numbers:
        return line
    in_code, size = not is_directive(line) if as_code is None else as_code, 0

    def number_of(match: re.Match[str]) -> str:
        nonlocal size
        word = match.group()
        if word not in numbers or (not in_code and match["key"] is not None):
            return word
        number = _written(numbers[word], in_code)
        size += len(number)
        _check_size(size)
        return number

    return _WORDS.sub(number_of, line)


def _check_size(num_characters: int) -> None:
    """Before it is joined: a table's name is a few characters, the table thousands."""
    if num_characters > MAX_PROGRAM_CHARACTERS + 1:
        raise InvalidProgram(
            f"the program has more than {MAX_PROGRAM_CHARACTERS} characters with its numbers filled in",
            field="program",
            value=num_characters,
            limit=MAX_PROGRAM_CHARACTERS,
        )


def _written(value: Value | str, in_code: bool) -> str:
    match value:
        case tuple():
            return (", " if in_code else ",").join(map(str, value))
        case int():
            return f"({value})" if value < 0 and in_code else str(value)
        case _:
            return value


def _within_limits(line: _Line, value: Value) -> Value:
    values = value if isinstance(value, tuple) else (value,)
    if len(values) > MAX_TABLE:
        _refuse(line.number, f"{line.name} has {len(values)} numbers", "let", len(values), f"at most {MAX_TABLE}")
    largest = max(values, key=abs)
    if abs(largest) > MAX_OFFSET:
        _refuse(line.number, f"{line.name} is {largest}", "let", largest, f"32-bit integers, at most {MAX_OFFSET}")
    return value


def _refuse(line: int, reason: str, field: str, value: object, limit: object) -> NoReturn:
    raise InvalidProgram(f"line {line}: {reason} (expected: {limit})", field=field, value=value, limit=limit)
