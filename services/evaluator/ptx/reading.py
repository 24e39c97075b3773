"""PTX text to a module: the grammar of what NVRTC writes, inline assembly included, and nothing else.

What this does not do: it does not know which instructions there are, nor what they mean (the contract's flow of
addresses and the interpreter do).
"""

import re
from collections.abc import Iterator

from services.evaluator.ptx.lexer import MalformedPtx, without_comments
from services.evaluator.ptx.module import Function, Instruction, Module, Statement, Variable, declared_name

ALLOWED_PRAGMAS = frozenset({"nounroll"})
"""All that NVRTC writes; a name that an assembler does not know is dropped with a warning, so others say nothing."""

_USED_BYTES = re.compile(r'\.pragma\s*"used_bytes_mask \d+"\s*;')
"""What NVRTC notes before a vector load of which it uses a part. It is left out: with it the rest of what is loaded
would be nobody knows what, and the assembler sees for itself."""

_SOURCE_FILE = "1"
_MAX_INLINING = 64

_BLANKS = re.compile(r"\s*")
_HEAD = re.compile(r"\.version \d+\.\d+|\.target sm_\d+[af]?|\.address_size 64")
_HEAD_LINE = re.compile(r"\.(?:version|target|address_size)\s+[\w.]+")
_FILE = re.compile(r'\.file\s+\d+\s+"[^"\n]*"(?:\s*,\s*\d+\s*,\s*\d+)?')
_SECTION = re.compile(r"\.section\s+\.debug_\w+\s*\{")
_FUNCTION = re.compile(r"((?:\.(?:visible|weak|extern|common)\s+)*)\.(entry|func)\b\s*")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
_LIST = re.compile(r"\(([^(){};\"]*)\)\s*")
_DIRECTIVES = re.compile(r"(?:\.(?:maxntid|reqntid|minnctapersm|maxnreg)\s+\d+(?:\s*,\s*\d+){0,2}\s*|\.noreturn\s*)*")
_ONE_DIRECTIVE = re.compile(r"\.\w+(?:\s+[\d,\s]+)?")
_PRAGMA = re.compile(r'\.pragma\s*"([^"\n]*)"\s*;')
_LOCATION = re.compile(
    r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?!\w)"
    r"(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\d+)?\s*,\s*inlined_at\s+(\d+)\s+(\d+)\s+(\d+)(?!\w))?"
)
_LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
_STATEMENT = re.compile(r"([^;{}\"]*(?:\{[^;{}\"]*\}[^;{}\"]*)*);")
_VARIABLE = re.compile(
    r"((?:\.(?:visible|weak|extern|common)\s+)*)\.(global|const|shared|local|param)\b([^;={}\"]*)(=[^;\"]*)?;"
)
_DECLARATION = re.compile(
    r"(?: \.(?:align \d+|[bsuf]\d+|f16x2|bf16|pred|ptr|global|const|shared|local))* [\w$%]+(?:\[\w*\])*"
)
_INITIAL = re.compile(r"[\w$.+\-,\s{}()]*")
_INSTRUCTION = re.compile(r"(?:@(!?[%\w$]+) )?([a-z][\w.:]*)(?: (.*))?")
_OPERANDS = re.compile(r"[\w$%.,+\-\[\](){}|!\s]*")
_TIGHT_REGISTERS = re.compile(r"^\.reg\.")
"""As the header of 16-bit floats writes them: `.reg.b32 f`."""
_REGISTERS = re.compile(r"\.reg \.\w+ [%\w$<>, ]+")
_LABELS = re.compile(r"\.(?:branchtargets|calltargets) [\w$, ]+")
_PROTOTYPE = re.compile(r"\.callprototype [^;{}\"]*")
_BRACKETS = {")": "(", "]": "[", "}": "{"}
_WORD = re.compile(r"[%A-Za-z_$][\w$]*")
_SPACES = re.compile(r"\s+")


def read_module(text: str) -> Module:
    """Reads a module. Raises MalformedPtx for text outside the grammar, with the line of the program if it is known."""
    return _Reader(without_comments(text)).module()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line = 0
        self._callers: dict[tuple[str, ...], tuple[str, ...]] = {}

    def module(self) -> Module:
        heads: list[str] = []
        variables: list[Variable] = []
        functions: dict[str, Function] = {}
        while self._skip_blanks():
            if head := self._take(_HEAD_LINE):
                heads.append(self._matching(_HEAD, _collapsed(head.group())))
            elif self._take(_FILE) or self._take(_LOCATION):
                pass
            elif self._take(_SECTION):
                self._skip_section()
            elif start := self._take(_FUNCTION):
                function = self._function(_collapsed(start[1]), start[2] == "entry")
                if function.body is not None or function.name not in functions:
                    self._refuse_twice(function, functions)
                    functions[function.name] = function
            elif variable := self._take(_VARIABLE):
                variables.append(self._variable(variable))
            else:
                self._take_pragma()
        return Module(tuple(heads), functions, _used(variables, functions))

    # -- pieces -------------------------------------------------------------------------------------------------------
    def _skip_blanks(self) -> bool:
        """False at the end of the text."""
        self._position = _BLANKS.match(self._text, self._position).end()  # type: ignore[union-attr]
        return self._position < len(self._text)

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self._text, self._position)
        if found:
            self._position = found.end()
        return found

    def _need(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = self._take(pattern)
        if found is None:
            raise self._malformed(f"{what} is missing at")
        return found

    def _matching(self, pattern: re.Pattern[str], text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise self._malformed("cannot be read:", text)
        return text

    def _malformed(self, problem: str, text: str | None = None) -> MalformedPtx:
        near = self._text[self._position : self._position + 60] if text is None else text[:60]
        where = f" (line {self._line} of the program)" if self._line else ""
        return MalformedPtx(f"PTX {problem} {_collapsed(near)!r}{where}")

    def _skip_section(self) -> None:
        """Debugging strings: nothing that runs."""
        end = self._text.find("}", self._position)
        if end < 0:
            raise self._malformed("has a section without an end at")
        self._position = end + 1

    def _take_pragma(self) -> None:
        pragma = self._need(_PRAGMA, "a declaration or function")
        if pragma[1] not in ALLOWED_PRAGMAS:
            raise self._malformed(f"has a .pragma other than {', '.join(sorted(ALLOWED_PRAGMAS))}:", pragma[1])

    # -- functions and variables --------------------------------------------------------------------------------------
    def _function(self, linkage: str, is_entry: bool) -> Function:
        results = self._take(_LIST)
        name = self._need(_NAME, "a function's name").group()
        self._skip_blanks()
        parameters = self._take(_LIST)
        directives = self._need(_DIRECTIVES, "a function's directives").group()
        self._skip_blanks()
        if self._text.startswith(";", self._position):
            self._position += 1
            body = None
        elif self._text.startswith("{", self._position):
            self._line = 0
            body = tuple(self._body())
        else:
            raise self._malformed(f"has neither a body nor a semicolon behind function {name}:")
        return Function(
            name,
            is_entry,
            linkage,
            self._parameters(results),
            self._parameters(parameters),
            tuple(_collapsed(each) for each in _ONE_DIRECTIVE.findall(directives)),
            body,
            tuple(_declared(statement) for statement in body or () if statement.kind == "variable"),
            tuple(_taken_apart(statement) for statement in body or () if statement.kind == "instruction"),
        )

    def _parameters(self, found: re.Match[str] | None) -> tuple[str, ...]:
        parts = [] if found is None else [_collapsed(part) for part in found[1].split(",")]
        if parts == [""]:
            return ()
        for part in parts:
            if not part.startswith((".param ", ".reg ")):
                raise self._malformed("has a parameter that cannot be read:", part)
            self._matching(_DECLARATION, part.removeprefix(".param").removeprefix(".reg"))
        return tuple(parts)

    def _variable(self, found: re.Match[str]) -> Variable:
        linkage, space, rest = _collapsed(found[1]), found[2], " " + _collapsed(found[3])
        self._matching(_DECLARATION, rest)
        initial = _collapsed(found[4] or "")
        self._matching(_INITIAL, initial[1:])
        text = " ".join(filter(None, [linkage, f".{space}{rest}", initial]))
        return Variable(space, declared_name(rest), text)

    def _refuse_twice(self, function: Function, functions: dict[str, Function]) -> None:
        before = functions.get(function.name)
        if before is not None and before.body is not None:
            raise self._malformed("defines twice", function.name)

    # -- bodies -------------------------------------------------------------------------------------------------------
    def _body(self) -> Iterator[Statement]:
        depth = 0
        while self._skip_blanks():
            character = self._text[self._position]
            if character in "{}":
                self._position += 1
                depth += 1 if character == "{" else -1
                yield Statement("open" if character == "{" else "close", character, self._line)
                if depth == 0:
                    return
            elif character == ";":
                self._position += 1
            elif location := self._take(_LOCATION):
                self._move_to(location)
            elif label := self._take(_LABEL):
                yield Statement("label", label[1], self._line)
            elif not self._take(_USED_BYTES):
                yield self._statement()
        raise self._malformed("has a function whose body does not end:")

    def _move_to(self, location: re.Match[str]) -> None:
        """Code inlined from headers counts as the line of the program that called it."""
        place = location.group(1, 2, 3)
        if location[4]:
            self._callers[place] = location.group(4, 5, 6)
        for _ in range(_MAX_INLINING):
            if place[0] == _SOURCE_FILE or place not in self._callers:
                break
            place = self._callers[place]
        if place[0] == _SOURCE_FILE and place[1] != "0":
            self._line = int(place[1])

    def _statement(self) -> Statement:
        if self._text.startswith(".pragma", self._position):
            self._take_pragma()
            return Statement("pragma", '.pragma "nounroll"', self._line)
        if variable := self._take(_VARIABLE):
            return Statement("variable", self._variable(variable).text, self._line)
        text = _collapsed(self._need(_STATEMENT, "a statement's end")[1])
        text = _TIGHT_REGISTERS.sub(".reg .", text)
        if not text.startswith("."):
            return Statement("instruction", self._instruction(text), self._line)
        for kind, pattern in (("registers", _REGISTERS), ("targets", _LABELS), ("prototype", _PROTOTYPE)):
            if pattern.fullmatch(text):
                return Statement(kind, text, self._line)  # type: ignore[arg-type]
        raise self._malformed("has a directive that is not known:", text)

    def _instruction(self, text: str) -> str:
        found = _INSTRUCTION.fullmatch(text)
        if found is None or not _OPERANDS.fullmatch(found[3] or "") or not _is_balanced(found[3] or ""):
            raise self._malformed("has an instruction that cannot be read:", text)
        return text


def _collapsed(text: str) -> str:
    return _SPACES.sub(" ", text).strip()


def _is_balanced(text: str) -> bool:
    opened: list[str] = []
    for character in text:
        if character in "([{":
            opened.append(character)
        elif character in ")]}" and (not opened or opened.pop() != _BRACKETS[character]):
            return False
    return not opened


def _declared(statement: Statement) -> Variable:
    found = _VARIABLE.match(statement.text + ";")
    assert found is not None
    return Variable(found[2], declared_name(" " + _collapsed(found[3])), statement.text)


def _taken_apart(statement: Statement) -> Instruction:
    found = _INSTRUCTION.fullmatch(statement.text)
    assert found is not None
    return Instruction(
        found[1] or "", tuple(found[2].split(".")), tuple(split_operands(found[3] or "")), statement.line
    )


def split_operands(text: str) -> Iterator[str]:
    """Split at the commas outside brackets, braces and parentheses."""
    if not any(bracket in text for bracket in "{(["):
        yield from (part.strip() for part in text.split(",") if part.strip())
        return
    depth, start = 0, 0
    for index, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            yield text[start:index].strip()
            start = index + 1
    if text[start:].strip():
        yield text[start:].strip()


def _used(variables: list[Variable], functions: dict[str, Function]) -> tuple[Variable, ...]:
    """Headers declare constants by the hundred that no kernel names."""
    used = {
        word for function in functions.values() for each in function.body or () for word in _WORD.findall(each.text)
    }
    found: dict[str, Variable] = {}
    rest = {variable.name: variable for variable in variables}
    while fresh := [rest.pop(name) for name in list(rest) if name in used]:
        for variable in fresh:
            found[variable.name] = variable
            used.update(_WORD.findall(variable.text.partition("=")[2]))
    return tuple(variable for variable in variables if found.get(variable.name) is variable)
