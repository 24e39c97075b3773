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
_ESCAPES = re.compile(r"\\[^nt\\\"]")
_OPERAND = re.compile(r'"(?:[=+]?&?[hrlqfdnb]|memory|cc)"')
"""A constraint or a clobber. "C" would put characters of a constant into the text."""

_Rules = Sequence[tuple[re.Pattern[str], str]]

_EVERYWHERE: _Rules = [
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
    *_EVERYWHERE,
    (re.compile(r"(?<![\w.%$])call\b"), "asm may not call"),
    (
        re.compile(r"(?<![\w.%\]>])\.(?!(?:reg|pred|[busf](?:8|16|32|64|128)|f16x2|bf16|bf16x2|v[24])\b)[a-z]\w*"),
        "asm may declare registers only",
    ),
]


def check_assembly(tokens: Sequence[Token]) -> None:
    """Raises InvalidProgram with the line and the reason."""
    for index, token in enumerate(tokens):
        if token.text in _ASM:
            _check_statement(tokens, index)


def forbidden_instruction(ptx: str) -> str:
    """What compiled PTX holds that no kernel may use, with the reason; empty where there is nothing."""
    code = _COMMENT.sub(" ", ptx)
    for pattern, reason in _EVERYWHERE:
        found = pattern.search(code)
        if found:
            return f"{found.group()}: {reason}"
    return ""


def _check_statement(tokens: Sequence[Token], index: int) -> None:
    opening = index + 1
    while opening < len(tokens) and tokens[opening].text in _VOLATILE:
        opening += 1
    if opening >= len(tokens) or tokens[opening].text != "(":
        refuse_token(tokens[index], "asm must be followed by its text in parentheses")
    inside = tokens[opening + 1 : closing(tokens, opening)]
    length = next((position for position, token in enumerate(inside) if token.text in (":", "::")), len(inside))
    template, operands = inside[:length], inside[length:]
    for token in template:
        if token.kind != "string":
            refuse_token(token, "the text of asm must be literal strings")
    for token in operands:
        if token.kind == "string" and not _OPERAND.fullmatch(token.text):
            refuse_token(token, "operands of asm are registers and numbers")
    _check_text(tokens[index], "".join(token.text[1:-1] for token in template))


def _check_text(token: Token, text: str) -> None:
    if _ESCAPES.search(text):
        refuse_token(token, "asm text may escape only \\n, \\t, \\\\ and quotes")
    ptx = _COMMENT.sub(" ", text.replace("\\n", "\n").replace("\\t", " "))
    for pattern, reason in _IN_TEXT:
        found = pattern.search(ptx)
        if found:
            refuse_token(token._replace(text=f"asm {found.group()}"), reason)
