"""Tokens of CUDA source: enough of C++'s first translation phases to know what the compiler will see.

Comments and line splices are gone, strings are whole, preprocessor directives are apart. Spellings that exist only to
make text look like something else (trigraphs, digraphs, raw strings, escapes in names) are refused, so that a check on
tokens is a check on what is compiled.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, NoReturn

from sparsesmith.errors import InvalidProgram

TokenKind = Literal["name", "number", "string", "character", "punctuation"]


class Token(NamedTuple):
    kind: TokenKind
    text: str
    line: int
    """Counted from 1."""
    start: int
    """Place of its first character in the text without line splices."""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class PreprocessorLine:
    """`# name rest`, splices resolved."""

    name: str
    """`include`, `define`, ...; empty for a lone `#`."""
    tokens: tuple[Token, ...]
    """What follows the name."""
    text: str
    """The logical line as written, comments included."""
    line: int
    spliced: bool
    """Whether backslashes join several lines."""


@dataclass(frozen=True)
class SourceTokens:
    code: tuple[Token, ...]
    """Everything outside preprocessor lines."""
    preprocessor: tuple[PreprocessorLine, ...]

    def everywhere(self) -> Iterator[Token]:
        """Tokens of the code and of macro bodies and conditions."""
        yield from self.code
        for line in self.preprocessor:
            yield from line.tokens


_TOKEN = re.compile(
    r"""
    (?P<space>[ \t]+)
  | (?P<newline>\n)
  | (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
  | (?P<number>\.?[0-9](?:[eEpP][+-]|'[0-9A-Za-z_]|[0-9A-Za-z_.])*)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<character>'(?:[^'\\\n]|\\[^\n])+')
  | (?P<punctuation><<<|>>>|\#\#|::|->|[!-/:-@\[\]^`{-~])
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTROL = re.compile(r"[^\t\n\x20-\x7e\x80-\U0010ffff]|[\x80-\x9f]")
_TRIGRAPH = re.compile(r"\?\?[=/'()!<>-]")
_LOOSE_SPLICE = re.compile(r"\\[ \t]+\n")
_SPLICE = "\\\n"
_RAW_STRING_PREFIXES = frozenset({"R", "LR", "uR", "UR", "u8R"})
_DIGRAPHS = frozenset({"<%", "%>", "<:", ":>", "%:"})
_BRACKETS = {")": "(", "]": "[", "}": "{"}


def tokenize(source: str) -> SourceTokens:
    """Tokens of CUDA source. Raises InvalidProgram for text that is not plain C++, with its line."""
    _refuse_match(source, _CONTROL, "control characters")
    _refuse_match(source, _TRIGRAPH, "trigraphs")
    _refuse_match(source, _LOOSE_SPLICE, "blanks between a backslash and the end of its line")
    return _Scanner(source).scan()


class _Scanner:
    def __init__(self, source: str) -> None:
        self._pieces = source.split(_SPLICE)
        self._text = "".join(self._pieces)
        self._splice_positions = self._positions_of_splices()
        self._line = 1
        self._next_splice = 0

    def scan(self) -> SourceTokens:
        code: list[Token] = []
        preprocessor: list[PreprocessorLine] = []
        line_tokens: list[Token] = []
        line_start = position = 0
        while position < len(self._text):
            match = self._match(position)
            kind, text, start = match.lastgroup, match.group(), position
            at_line = self._line
            position = match.end()
            if kind in ("newline", "comment") or self._splice_positions:
                self._advance(text, position)
            if kind == "newline":
                self._close_line(line_tokens, line_start, start, code, preprocessor)
                line_tokens, line_start = [], position
            elif kind not in ("space", "comment"):
                if kind == "punctuation":
                    self._refuse_disguise(line_tokens, text, start, at_line)
                line_tokens.append(Token(_kind(kind), text, at_line, start))
                if kind == "name" and text in _RAW_STRING_PREFIXES and self._text[position : position + 1] == '"':
                    _refuse("raw strings", at_line)
        self._close_line(line_tokens, line_start, len(self._text), code, preprocessor)
        return SourceTokens(tuple(code), tuple(preprocessor))

    def _match(self, position: int) -> re.Match[str]:
        match = _TOKEN.match(self._text, position)
        if match is None:
            _refuse(f"{self._text[position]!r} outside comments and strings", self._line)
        if match.lastgroup == "punctuation":
            self._refuse_stray(match.group(), position)
        return match

    def _refuse_stray(self, text: str, position: int) -> None:
        if text == "/" and self._text.startswith("/*", position):
            _refuse("a comment without an end", self._line)
        if text in ('"', "'", "`", "@", "$"):
            _refuse(f"a stray {text}", self._line)

    def _positions_of_splices(self) -> list[int]:
        positions, position = [], 0
        for piece in self._pieces[:-1]:
            position += len(piece)
            positions.append(position)
        return positions

    def _advance(self, text: str, end: int) -> None:
        self._line += text.count("\n")
        while self._next_splice < len(self._splice_positions) and self._splice_positions[self._next_splice] <= end:
            self._line += 1
            self._next_splice += 1

    def _refuse_disguise(self, before: list[Token], text: str, start: int, line: int) -> None:
        touches = bool(before) and start > 0 and self._text[start - len(before[-1].text) : start] == before[-1].text
        if not touches:
            return
        pair = before[-1].text[-1] + text[0]
        if pair in _DIGRAPHS:
            _refuse(f"the digraph {pair} (put a blank between the two)", line)

    def _close_line(
        self,
        tokens: list[Token],
        start: int,
        end: int,
        code: list[Token],
        preprocessor: list[PreprocessorLine],
    ) -> None:
        if not tokens or tokens[0].text not in ("#", "##"):
            code.extend(tokens)
            return
        name = tokens[1].text if len(tokens) > 1 else ""
        spliced = bisect_left(self._splice_positions, start) < bisect_right(self._splice_positions, end)
        text = self._text[start:end]
        preprocessor.append(PreprocessorLine(name, tuple(tokens[2:]), text, tokens[0].line, spliced))


def _kind(group: str | None) -> TokenKind:
    match group:
        case "name" | "number" | "string" | "character" | "punctuation":
            return group
    raise AssertionError(group)


def check_brackets(tokens: Sequence[Token]) -> None:
    """Raises InvalidProgram unless ( [ and { nest by kind, so that everyone finds the same end of each."""
    opened: list[Token] = []
    for token in tokens:
        if token.kind == "punctuation" and token.text in _BRACKETS.values():
            opened.append(token)
        elif token.kind == "punctuation" and token.text in _BRACKETS:
            before = opened.pop() if opened else None
            if before is None:
                refuse_token(token, "it closes nothing; brackets nest by kind, in macros and on all branches of #if")
            if before.text != _BRACKETS[token.text]:
                refuse_token(token, f"it closes the {before.text} of line {before.line}; brackets nest by kind")
    if opened:
        refuse_token(opened[-1], "it is never closed; brackets nest by kind, in macros and on all branches of #if")


def closing(code: Sequence[Token], opening: int) -> int:
    """Index of the bracket that closes the one at `opening`; the end of the code where it is missing."""
    depth = 0
    for index in range(opening, len(code)):
        if code[index].text in ("(", "[", "{"):
            depth += 1
        elif code[index].text in (")", "]", "}"):
            depth -= 1
            if depth == 0:
                return index
    return len(code)


def refuse_token(token: Token, reason: str) -> NoReturn:
    """Raises InvalidProgram with the token's line and the reason."""
    raise InvalidProgram(
        f"line {token.line}: {token.text} is not allowed: {reason}", field="program", value=token.text, limit=reason
    )


def _refuse_match(source: str, forbidden: re.Pattern[str], what: str) -> None:
    found = forbidden.search(source)
    if found:
        _refuse(what, source.count("\n", 0, found.start()) + 1)


def _refuse(what: str, line: int) -> NoReturn:
    raise InvalidProgram(f"line {line}: {what} may not appear in a kernel program", field="program", value=what)
