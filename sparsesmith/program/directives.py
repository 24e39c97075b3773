"""The `//@` lines of a kernel program: one `format` or `task`, 1 to 64 `launch`, at most one `values`, any `require`,
`scratch`.

//@ format sell slice=32 sigma=1024 index=u16
//@ require num_rows=1000
//@ values dictionary code=u8
//@ scratch partial = num_slices * 32
//@ launch spmv grid=ceil_div(num_slices,8) block=256 shared=4096 dependency=programmatic

Lines that leave numbers open (`let`, `tune`, `pick`) are filled in before: see `numbers`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn, cast, get_args

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import Format, complete_parameters, format_named
from sparsesmith.formats.format import HEAD, NO_FORMAT, ParameterValue
from sparsesmith.formats.values.compressed import compressed
from sparsesmith.formats.values.storage import VALUE_STORAGES, ValueStorage
from sparsesmith.operations import Operation
from sparsesmith.operations.operation import operands_with_role, task_size_names
from sparsesmith.program.expression import Expression, parse_expression
from sparsesmith.program.scratch import Scratch, check_scratch, parse_scratch

PREFIX = "//@"
KEYWORDS = "format, task, launch, values, require, scratch; let, tune and pick, which are filled in before"
MAX_LAUNCHES = 64
"""Enough for sweeps over the levels of a graph. In a CUDA graph each costs about half a microsecond of an H200: more of
them would take longer than the products that are tuned."""

MAX_NAME_CHARACTERS = 64
MAX_REQUIREMENTS = 8
"""In a line."""

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS_A_BLOCK = 1024
MAX_SHARED_BYTES = 232448
"""227 KiB: what a thread block of sm_90 may opt in to."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = re.compile(r"([a-z_]+)=([A-Za-z0-9_]+(?:,[0-9]+)*)")
_REQUIREMENT = re.compile(r"([a-z_]+)=([0-9]{1,10})", re.ASCII)
_LAUNCH_KEY = re.compile(r"(?:^|\s)([A-Za-z_]+)\s*=")

DEVICE_NAMES = NUM_SMS, NUM_DENSE_COLS = ("num_sms", "num_dense_cols")
"""Names that expressions may use besides the sizes among the arguments; the second where there is a matrix."""

Dimensions = tuple[int, int, int]

Dependency = Literal["full", "programmatic"]
"""How a launch waits for what the stream did before. `programmatic` (CUDA's programmatic dependent launch): the grid
may start while the kernel before it drains; it must execute `griddepcontrol.wait` before it touches a vector or
scratch. Reads of the matrix may come before, so that they overlap with the end of whatever ran before."""

WAIT_INSTRUCTION = "griddepcontrol.wait"

_LAUNCH_KEYS = ("grid", "block", "shared", "dependency")
_LAUNCH_FORM = "grid=, block=, shared=, dependency="


@dataclass(frozen=True)
class ResolvedLaunch:
    """A launch for one pattern on one device, within CUDA's limits."""

    kernel: str
    grid: Dimensions
    block: Dimensions
    shared_bytes: int
    """Dynamic shared memory."""
    dependency: Dependency = "full"


@dataclass(frozen=True)
class Launch:
    kernel: str
    grid: tuple[Expression, ...]
    """One to three; the rest are 1."""
    block: tuple[Expression, ...]
    """One to three; the rest are 1."""
    shared: Expression
    """Bytes of dynamic shared memory."""
    dependency: Dependency = "full"
    line: int = field(default=0, compare=False)
    """Of the text; 0: none."""

    @property
    def names(self) -> frozenset[str]:
        """Sizes that the launch depends on."""
        return frozenset[str]().union(*(expression.names for expression in (*self.grid, *self.block, self.shared)))

    def resolve(self, sizes: Mapping[str, int]) -> ResolvedLaunch:
        """Raises InvalidProgram where a dimension or the shared memory is beyond CUDA's limits."""
        return ResolvedLaunch(
            self.kernel,
            self._dimensions("grid", self.grid, MAX_GRID, sizes),
            self._block(sizes),
            self._bounded("shared", self.shared.evaluate(sizes), 0, MAX_SHARED_BYTES),
            self.dependency,
        )

    def check_constants(self) -> None:
        """As resolve, for what does not depend on the pattern: a wrong block size needs no compiler to be found."""
        if not any(expression.names for expression in self.block):
            self._block({})
        if not self.shared.names:
            self._bounded("shared", self.shared.evaluate({}), 0, MAX_SHARED_BYTES)

    def _block(self, sizes: Mapping[str, int]) -> Dimensions:
        block = self._dimensions("block", self.block, MAX_BLOCK, sizes)
        self._bounded("block", block[0] * block[1] * block[2], 1, MAX_THREADS_A_BLOCK)
        return block

    def _dimensions(
        self, what: str, expressions: tuple[Expression, ...], limits: Dimensions, sizes: Mapping[str, int]
    ) -> Dimensions:
        values = [expression.evaluate(sizes) for expression in expressions] + [1, 1]
        x, y, z = (
            self._bounded(f"{what}.{axis}", value, 1, limit)
            for axis, value, limit in zip("xyz", values, limits, strict=False)
        )
        return x, y, z

    def _bounded(self, what: str, value: int, low: int, high: int) -> int:
        if not low <= value <= high:
            where = f"line {self.line}: " if self.line else ""
            raise InvalidProgram(
                f"{where}launch {self.kernel}: {what} is {value}, must be from {low} to {high}",
                field=what,
                value=value,
                limit=f"{low}..{high}",
            )
        return value


@dataclass(frozen=True)
class Requirement:
    """A size that the text was written for: it computes nothing right where the matrix has another."""

    name: str
    value: int
    line: int


@dataclass(frozen=True)
class Directives:
    format: Format
    parameters: dict[str, ParameterValue]
    launches: tuple[Launch, ...]
    requirements: tuple[Requirement, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    task: str = ""
    """The operation that is named in the place of a format; empty: a format is."""


def is_directive(line: str) -> bool:
    return line.lstrip(" \t").startswith(PREFIX)


def parse_directives(text: str) -> Directives:
    """Raises InvalidProgram for a missing, repeated, unknown or malformed directive, with its line."""
    formats: list[tuple[Format, dict[str, ParameterValue]]] = []
    tasks: list[str] = []
    launches: list[Launch] = []
    storages: list[ValueStorage] = []
    requirements: list[Requirement] = []
    scratch: list[Scratch] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not is_directive(line):
            continue
        keyword, rest = _keyword(line)
        match keyword:
            case "format":
                formats.append(_parse_format(rest, number))
            case "task":
                tasks.append(rest.strip())
            case "launch":
                launches.append(_parse_launch(rest, number))
            case "values":
                storages.append(_parse_value_storage(rest, number))
            case "require":
                requirements += _parse_requirements(rest, number)
            case "scratch":
                scratch.append(parse_scratch(rest, number))
            case _:
                _refuse(number, f"unknown directive {keyword!r}", keyword, KEYWORDS)
    format_, parameters = _stored(formats, tasks, storages)
    _check_sequence(launches)
    return Directives(
        format_, parameters, tuple(launches), tuple(requirements), tuple(scratch), tasks[0] if tasks else ""
    )


def _check_sequence(launches: Sequence[Launch]) -> None:
    if not 1 <= len(launches) <= MAX_LAUNCHES:
        raise InvalidProgram(
            f"{len(launches)} `//@ launch` lines: one to {MAX_LAUNCHES} are needed",
            field="launch",
            value=len(launches),
            limit=f"1..{MAX_LAUNCHES}",
        )
    for launch in launches[1:]:
        if launch.dependency != "full":
            raise InvalidProgram(
                f"launch {launch.kernel}: only the first launch of a program may have dependency={launch.dependency}",
                field="dependency",
                value=launch.dependency,
                limit="full",
            )


def without_directives(text: str) -> str:
    """What the compiler gets: directives blanked, so that line numbers hold."""
    return "\n".join("" if is_directive(line) else line for line in text.split("\n"))


def check_directives(directives: Directives, source: str, operation: Operation) -> None:
    """What can be told without a pattern. Raises InvalidProgram for another task than the operation, names that are no
    size, launches and lengths that no pattern makes legal, and a launch that starts early in a source that never
    waits."""
    _check_task(directives.task, operation)
    known = launch_names(directives.format, directives.parameters, operation)
    _check_requirements(directives.requirements, [name for name in known if name not in DEVICE_NAMES])
    for launch in directives.launches:
        _check_names(launch, known)
        launch.check_constants()
        _check_wait(launch, source)
        _check_in_place(launch, operation)
    check_scratch(directives.scratch, known)


def launch_names(format_: Format, parameters: Mapping[str, ParameterValue], operation: Operation) -> tuple[str, ...]:
    """Names that the expressions of a program in this format may use."""
    if not operation.takes_matrix:
        return (*task_size_names(operation), NUM_SMS)
    own = (*HEAD, *format_.arguments(parameters))
    named = (name for name in operation.axes if name != NUM_DENSE_COLS)
    return (*(argument.name for argument in own if argument.role == "size"), NUM_SMS, NUM_DENSE_COLS, *named)


def _check_task(task: str, operation: Operation) -> None:
    needed = "//@ format" if operation.takes_matrix else f"//@ task {operation.name}"
    if task != ("" if operation.takes_matrix else operation.name):
        given = f"//@ task {task}" if task else "//@ format"
        raise InvalidProgram(
            f"the program says `{given}`: for {operation.name} `{needed}` is needed",
            field="task",
            value=task or None,
            limit=needed,
        )


def _check_wait(launch: Launch, source: str) -> None:
    """A word in time; whether the wait comes early enough is seen when the program runs."""
    if launch.dependency == "programmatic" and WAIT_INSTRUCTION not in source:
        raise InvalidProgram(
            f"launch {launch.kernel}: dependency=programmatic needs `{WAIT_INSTRUCTION}` before the first access to a "
            "vector or to scratch",
            field="dependency",
            value=launch.dependency,
            limit=WAIT_INSTRUCTION,
        )


def _check_in_place(launch: Launch, operation: Operation) -> None:
    """What is changed in place is brought back by a copy before each timed run, which no kernel overtakes."""
    changed = operands_with_role(operation, "inout")
    if launch.dependency == "programmatic" and changed:
        raise InvalidProgram(
            f"launch {launch.kernel}: dependency=programmatic, and {changed[0].name} is changed in place: such a "
            "program may not start early",
            field="dependency",
            value=launch.dependency,
            limit="full",
        )


def _check_requirements(requirements: tuple[Requirement, ...], known: list[str]) -> None:
    for required in requirements:
        if required.name not in known:
            raise InvalidProgram(
                f"line {required.line}: unknown size {required.name!r} (known: {', '.join(known)})",
                field="require",
                value=required.name,
                limit=", ".join(known),
            )


def _check_names(launch: Launch, known: tuple[str, ...]) -> None:
    unknown = sorted(launch.names - set(known))
    if unknown:
        raise InvalidProgram(
            f"launch {launch.kernel}: unknown name {unknown[0]!r} (known: {', '.join(known)})",
            field="launch",
            value=unknown[0],
            limit=", ".join(known),
        )


def stored_form(text: str) -> tuple[Format, dict[str, ParameterValue]]:
    """What the `format` and `values` lines say, or a `task` line in their place, whatever the others hold.

    Raises InvalidProgram as `parse_directives`.
    """
    lines = [(number, *_keyword(line)) for number, line in enumerate(text.split("\n"), start=1) if is_directive(line)]
    formats = [_parse_format(rest, number) for number, keyword, rest in lines if keyword == "format"]
    storages = [_parse_value_storage(rest, number) for number, keyword, rest in lines if keyword == "values"]
    return _stored(formats, [rest for _, keyword, rest in lines if keyword == "task"], storages)


def _keyword(line: str) -> tuple[str, str]:
    """A directive and what follows it."""
    keyword, _, rest = line.strip()[len(PREFIX) :].strip().partition(" ")
    return keyword, rest


_Stored = tuple[Format, dict[str, ParameterValue]]


def _stored(formats: list[_Stored], tasks: list[str], storages: list[ValueStorage]) -> _Stored:
    """How the matrix is stored; NO_FORMAT of a task. Raises InvalidProgram unless just one of the two is named."""
    if tasks and (formats or len(tasks) > 1):
        raise InvalidProgram(
            f"{len(tasks)} `//@ task` and {len(formats)} `//@ format` lines: exactly one of either is needed",
            field="task",
            value=len(tasks) + len(formats),
            limit=1,
        )
    if not tasks and len(formats) != 1:
        raise InvalidProgram(
            f"{len(formats)} `//@ format` lines: exactly one is needed", field="format", value=len(formats), limit=1
        )
    allowed = 0 if tasks else 1
    if len(storages) > allowed:
        most = "a task has no matrix" if tasks else "at most one"
        raise InvalidProgram(
            f"{len(storages)} `//@ values` lines: {most}", field="values", value=len(storages), limit=allowed
        )
    if tasks:
        return NO_FORMAT, {}
    format_, parameters = formats[0]
    return (compressed(format_, storages[0]) if storages else format_), parameters


def _parse_format(rest: str, number: int) -> tuple[Format, dict[str, ParameterValue]]:
    name, *words = rest.split() or [""]
    given: dict[str, ParameterValue] = {}
    for word in words:
        match = _PARAMETER.fullmatch(word)
        if match is None:
            _refuse(number, f"format parameter {word!r} is not NAME=VALUE", word, "NAME=VALUE")
        if match[1] in given:
            _refuse(number, f"format parameter {match[1]} is given twice", match[1], "once")
        given[match[1]] = _parameter_value(match[2])
    format_ = format_named(name)
    return format_, complete_parameters(format_, given)


def _parse_requirements(rest: str, number: int) -> list[Requirement]:
    words = rest.split()
    if not 1 <= len(words) <= MAX_REQUIREMENTS:
        _refuse(number, f"{len(words)} requirements", len(words), f"1..{MAX_REQUIREMENTS} of NAME=NUMBER")
    requirements = []
    for word in words:
        match = _REQUIREMENT.fullmatch(word)
        if match is None:
            _refuse(number, f"requirement {word!r} is not NAME=NUMBER", word, "NAME=NUMBER")
        requirements.append(Requirement(match[1], int(match[2]), number))
    return requirements


def _parse_value_storage(rest: str, number: int) -> ValueStorage:
    storage = VALUE_STORAGES.get(" ".join(rest.split()))
    if storage is None:
        _refuse(number, f"unknown value storage {rest.strip()!r}", rest.strip(), ", ".join(VALUE_STORAGES))
    return storage


def _parameter_value(text: str) -> ParameterValue:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


def _parse_launch(rest: str, number: int) -> Launch:
    name, _, arguments = rest.strip().partition(" ")
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARACTERS:
        _refuse(number, f"{name!r} is not the name of a kernel", name, f"an identifier of <= {MAX_NAME_CHARACTERS}")
    values = _launch_values(arguments, number)
    for key in ("grid", "block"):
        if key not in values:
            _refuse(number, f"launch {name} lacks {key}=", key, "grid= and block=")
    return Launch(
        name,
        _dimension_expressions(values["grid"], number),
        _dimension_expressions(values["block"], number),
        parse_expression(values.get("shared", "0")),
        _parse_dependency(values.get("dependency", "full").strip(), number),
        number,
    )


def _parse_dependency(word: str, number: int) -> Dependency:
    if word not in get_args(Dependency):
        _refuse(number, f"dependency={word} is unknown", word, ", ".join(get_args(Dependency)))
    return cast(Dependency, word)


def _launch_values(arguments: str, number: int) -> dict[str, str]:
    keys = list(_LAUNCH_KEY.finditer(arguments))
    leading = arguments[: keys[0].start()] if keys else arguments
    if leading.strip():
        _refuse(number, f"{leading.strip()!r} is not KEY=EXPRESSION", leading.strip(), _LAUNCH_FORM)
    ends = [*(key.start() for key in keys), len(arguments)][1:]
    values: dict[str, str] = {}
    for key, end in zip(keys, ends, strict=True):
        if key[1] not in _LAUNCH_KEYS or key[1] in values:
            _refuse(number, f"launch key {key[1]!r} is unknown or given twice", key[1], _LAUNCH_FORM)
        values[key[1]] = arguments[key.end() : end]
    return values


def _dimension_expressions(text: str, number: int) -> tuple[Expression, ...]:
    parts, depth = [""], 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if len(parts) > 3:
        _refuse(number, f"{text.strip()!r} has {len(parts)} dimensions", len(parts), 3)
    return tuple(parse_expression(part) for part in parts)


def _refuse(number: int, reason: str, value: object, limit: object) -> NoReturn:
    raise InvalidProgram(f"line {number}: {reason} (expected: {limit})", field="directive", value=value, limit=limit)
