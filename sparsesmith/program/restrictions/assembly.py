"""Inline PTX in a kernel program: welcome where its text is plain and neither declares, calls nor tells the time.

Twice checked: in the program's text, where the message can name the line, and in the compiled PTX, where numbers have
been put into the text (`%pm%1`) and the compiler's own functions (`__brkpt`) have become instructions.
"""

import re
from collections.abc import Sequence

from sparsesmith.program.restrictions.tokens import Token, closing, refuse_token

_ASM = frozenset({"asm", "__asm__", "__asm"})
_VOLATILE = frozenset({"volatile", "__volatile__"})
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ESCAPES = re.compile(r"\\[^nt\\]")
_CONSTRAINT = re.compile(r'"[=+]?&?[hrlqfdnb]"')
"""Of an operand. "C" would put characters of a constant into the text."""
_CLOBBERS = ('"memory"', '"cc"')
_OPERAND_FORM = 'write "r"(expression), with r, l, f, d, h, q, b or n, = or + before it for results'

_Rules = Sequence[tuple[re.Pattern[str], str]]

FORBIDDEN_INSTRUCTIONS: _Rules = [
    (
        re.compile(r"%(clock\w*|globaltimer\w*|n?smid|n?warpid|gridid|pm\d\w*|envreg\d+|current_graph_exec)\b"),
        "clocks and positions could tell a timed run from a checked one",
    ),
    (re.compile(r"(?<![\w.%$])(pmevent|brkpt)\b(?!\s*[(,])"), "a kernel may not signal"),
    (re.compile(r"(?<![\w.%$])discard\b(?!\s*[(,])"), "a kernel may not throw away what memory holds"),
    (
        re.compile(r"(?<![\w.%$])griddepcontrol\b(?!\.wait\b)"),
        "a kernel may wait for what ran before it, not let start early what comes after",
    ),
]
"""Of assembly in the text and of all that the compiler makes. A function may be called as an instruction is."""

_IN_TEXT: _Rules = [
    *FORBIDDEN_INSTRUCTIONS,
    (re.compile(r"(?<![\w.%$])call\b"), "asm may not call"),
    (
        re.compile(r"(?<![\w.%\]>])\.(?!(?:reg|pred|[busf](?:8|16|32|64|128)|f16x2|bf16|bf16x2|v[24])\b)[a-z]\w*"),
        "asm may declare registers only",
    ),
]


def check_assembly(tokens: Sequence[Token], macros: frozenset[str] = frozenset()) -> None:
    """Raises InvalidProgram with the line and the reason.

    A statement is `asm`, `volatile` where you like, and in parentheses: literal strings; then, each behind a colon,
    results, sources and clobbers. An operand is a constraint of the list with an expression in parentheses, and may
    have a name in brackets before it. Nothing that a macro could turn into something else stands outside those
    parentheses.
    """
    for index, token in enumerate(tokens):
        if token.text in _ASM:
            _check_statement(tokens, index, macros)


def _check_statement(tokens: Sequence[Token], index: int, macros: frozenset[str]) -> None:
    opening = index + 1
    while opening < len(tokens) and tokens[opening].text in _VOLATILE:
        opening += 1
    if opening >= len(tokens) or tokens[opening].text != "(":
        refuse_token(tokens[index], "asm must be followed by its text in parentheses")
    template, *lists = _sections(tokens[opening + 1 : closing(tokens, opening)])
    for token in template:
        if token.kind != "string":
            refuse_token(token, "the text of asm must be literal strings")
    if len(lists) > 3:
        refuse_token(tokens[index], "asm has results, sources and clobbers, each behind a colon, and no more")
    for position, section in enumerate(lists):
        check = _check_clobber if position == 2 else _check_operand
        for operand in _operands(section):
            check(operand, section, macros)
    _check_text(tokens[index], "".join(token.text[1:-1] for token in template))


def _sections(tokens: Sequence[Token]) -> list[list[Token]]:
    """What stands between the colons outside brackets; `::` is two of them."""
    sections: list[list[Token]] = [[]]
    position = 0
    while position < len(tokens):
        end = position + 1
        if tokens[position].text in (":", "::"):
            sections += [[] for _ in tokens[position].text]
        else:
            if tokens[position].text in ("(", "[", "{"):
                end = closing(tokens, position) + 1
            sections[-1] += tokens[position:end]
        position = end
    return sections


def _operands(section: Sequence[Token]) -> list[list[Token]]:
    """What stands between the commas outside brackets."""
    operands: list[list[Token]] = [[]]
    position = 0
    while position < len(section):
        end = closing(section, position) + 1 if section[position].text in ("(", "[", "{") else position + 1
        if section[position].text == ",":
            operands.append([])
        else:
            operands[-1] += section[position:end]
        position = end
    return operands if section else []


def _check_operand(operand: Sequence[Token], section: Sequence[Token], macros: frozenset[str]) -> None:
    if not operand:
        refuse_token(section[0], f"an operand of asm is missing: {_OPERAND_FORM}")
    rest = list(operand)
    if rest[0].text == "[":
        if len(rest) < 3 or rest[1].kind != "name" or rest[2].text != "]" or rest[1].text in macros:
            refuse_token(rest[0], f"the name of an asm operand is one plain name that no macro has: {_OPERAND_FORM}")
        rest = rest[3:]
    if not rest or rest[0].kind != "string" or not _CONSTRAINT.fullmatch(rest[0].text):
        refuse_token(rest[0] if rest else operand[0], f"operands of asm are registers and numbers: {_OPERAND_FORM}")
    if len(rest) < 4 or rest[1].text != "(" or closing(rest, 1) != len(rest) - 1:
        refuse_token(rest[0], f"an operand of asm has one expression in parentheses: {_OPERAND_FORM}")


def _check_clobber(operand: Sequence[Token], section: Sequence[Token], macros: frozenset[str]) -> None:
    if len(operand) != 1 or operand[0].text not in _CLOBBERS:
        refuse_token((operand or section)[0], 'what asm clobbers is "memory" or "cc"')


def _check_text(token: Token, text: str) -> None:
    if _ESCAPES.search(text):
        refuse_token(token, "asm text may escape only \\n, \\t and \\\\")
    ptx = _COMMENT.sub(" ", text.replace("\\n", "\n").replace("\\t", " "))
    for pattern, reason in _IN_TEXT:
        found = pattern.search(ptx)
        if found:
            refuse_token(token._replace(text=f"asm {found.group()}"), reason)
