"""What a kernel program may not contain: state between launches, clocks, other launches, allocation, output.

A static check on tokens. It protects the measurement and makes cheating plain to read; it does **not** protect the
evaluator's process (the sandbox does), does not bound compile time (the compiler's time limit does), and cannot see a
constant that is written to through a cast (inputs that change between runs can).
"""

import re
from collections.abc import Sequence
from typing import NoReturn

from sparsesmith.domain.signature import closing
from sparsesmith.domain.tokens import SourceTokens, Token
from sparsesmith.errors import InvalidProgram

_CLOCK = "clocks could tell a timed run from a checked one"
_ALLOCATION = "device memory may not be allocated: use the format's scratch, shared memory or registers"
_LAUNCH = "only the program's launch lines launch kernels"
_OUTPUT = "a kernel writes to its output only"
_STATE = "nothing may outlive a launch but the output and the format's scratch"
_OUTSIDE = "the text may not look outside itself"
_GRID = "kernels are not launched cooperatively: a barrier over the grid would never end"
_TOKENS = "names must stand in the text as they are compiled"

_NAMES: Sequence[tuple[re.Pattern[str], str]] = [
    (re.compile(r"\w*clock\w*|\w*globaltimer\w*|chrono", re.IGNORECASE), _CLOCK),
    (re.compile(r"malloc|free|calloc|realloc|new|delete|_*(builtin_)?alloca|aligned_alloc"), _ALLOCATION),
    (re.compile(r"_*cu(da)?[A-Z]\w*"), _LAUNCH),
    (re.compile(r"v?printf|assert|__assert_?fail|puts"), _OUTPUT),
    (re.compile(r"__managed__|thread_local|mutable|const_cast"), _STATE),
    (re.compile(r"__FILE__|__BASE_FILE__|__(builtin_)?FILE(_NAME)?(__)?|__DATE__|__TIME__|__TIMESTAMP__"), _OUTSIDE),
    (re.compile(r"__has_(include|embed)(_next)?|_Pragma|__pragma|import|export|source_location"), _OUTSIDE),
    (re.compile(r"this_(multi_)?grid|(multi_)?grid_group|details"), _GRID),
]

_ASM = frozenset({"asm", "__asm__", "__asm"})
_ASM_ESCAPES = re.compile(r"\\[^nt\\\"]")
_ASM_REGISTERS = re.compile(
    r"%(clock\w*|globaltimer\w*|smid|nsmid|warpid|nwarpid|gridid|pm\d\w*|envreg\d+|current_graph_exec)\b"
)
_ASM_STATEMENTS = re.compile(r"(?<![\w.%$])(call|pmevent|brkpt|griddepcontrol)\b")
_ASM_DIRECTIVES = re.compile(
    r"(?<![\w.%\]>])\.(?!(?:reg|pred|[busf](?:8|16|32|64|128)|f16x2|bf16|bf16x2|v[24])\b)[a-z]\w*"
)

_SKIPPED_WITH_PARENTHESES = frozenset(
    {"__launch_bounds__", "__align__", "alignas", "__attribute__", "decltype", "__declspec", "explicit", "noexcept"}
)
_AFTER_FUNCTION_HEAD = frozenset({"{", ":", "->", "const", "noexcept"})


def check_restrictions(source: SourceTokens) -> None:
    """Raises InvalidProgram with the line and the reason."""
    for token in source.everywhere():
        _check_token(token)
    for line in source.preprocessor:
        if line.name == "define":
            _check_macro(line.tokens)
        _check_asm(line.tokens)
    _check_asm(source.code)
    _check_persistent_variables(source.code)


def _check_token(token: Token) -> None:
    if token.text in ("<<<", "##"):
        _refuse(token, _LAUNCH if token.text == "<<<" else _TOKENS)
    if token.kind != "name":
        return
    for pattern, reason in _NAMES:
        if pattern.fullmatch(token.text):
            _refuse(token, reason)


def _check_macro(tokens: Sequence[Token]) -> None:
    for token in tokens[1:]:
        if token.text in ("__global__", "__device__", "__constant__", "static", "extern"):
            _refuse(token, "declarations may not hide in macros")
    if tokens and (tokens[0].text.startswith("__") or tokens[0].text in _REDEFINED):
        _refuse(tokens[0], "reserved names may not be redefined")


_REDEFINED = frozenset(
    {"asm", "static", "const", "constexpr", "extern", "void", "int", "float", "double", "unsigned", "short", "operator"}
)


def _check_asm(tokens: Sequence[Token]) -> None:
    """Inline PTX is welcome where its text is plain: literal strings, and nothing that declares, calls or times."""
    for index, token in enumerate(tokens):
        if token.text not in _ASM:
            continue
        opening = index + 1
        while opening < len(tokens) and tokens[opening].text in ("volatile", "__volatile__"):
            opening += 1
        if opening >= len(tokens) or tokens[opening].text != "(":
            _refuse(token, "asm must be followed by its text in parentheses")
        _check_asm_text(token, _template(tokens, opening))


def _template(tokens: Sequence[Token], opening: int) -> str:
    """The PTX text between the parenthesis and the first colon, its literals joined."""
    parts = []
    for token in tokens[opening + 1 : closing(tokens, opening)]:
        if token.text in (":", "::"):
            break
        if token.kind != "string":
            _refuse(token, "the text of asm must be literal strings")
        parts.append(token.text[1:-1])
    return "".join(parts)


def _check_asm_text(token: Token, text: str) -> None:
    if _ASM_ESCAPES.search(text):
        _refuse(token, "asm text may escape only \\n, \\t, \\\\ and quotes")
    ptx = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text.replace("\\n", "\n").replace("\\t", " "), flags=re.DOTALL)
    for pattern, reason in (
        (_ASM_REGISTERS, _CLOCK),
        (_ASM_STATEMENTS, "asm may not call or signal"),
        (_ASM_DIRECTIVES, "asm may declare registers only"),
    ):
        found = pattern.search(ptx)
        if found:
            _refuse(token._replace(text=f"asm {found.group()}"), reason)


def _check_persistent_variables(code: Sequence[Token]) -> None:
    for index, token in enumerate(code):
        declares = token.text in ("__device__", "static") and not _declares_function(code, index)
        if declares or token.text == "__constant__":
            _check_variable(code, index, token)


def _declares_function(code: Sequence[Token], index: int) -> bool:
    """Whether the declaration from `index` on is a function with a body (or a lambda, or a defaulted member)."""
    position = index + 1
    while position < len(code):
        text = code[position].text
        if (
            text in _SKIPPED_WITH_PARENTHESES
            and code[position + 1 : position + 2][:1]
            and code[position + 1].text == "("
        ):
            position = closing(code, position + 1) + 1
        elif text == "operator":
            position += 3 if _texts(code, position + 1, 2) in (["(", ")"], ["[", "]"]) else 2
        elif text == "(":
            after = _texts(code, closing(code, position) + 1, 2)
            return after[:1] != [] and (after[0] in _AFTER_FUNCTION_HEAD or after == ["=", "default"])
        elif text in (";", "=", "{", "}", "["):
            return False
        else:
            position += 1
    return False


def _check_variable(code: Sequence[Token], index: int, token: Token) -> None:
    start = index
    while start > 0 and code[start - 1].text not in (";", "{", "}"):
        start -= 1
    end, initialised = _declaration_end(code, index)
    outside = [part.text for part in code[start:index]] + [part.text for part in _outside_brackets(code[index:end])]
    if "__shared__" in outside:
        return
    constant = "constexpr" in outside or (
        "*" not in outside and "&" not in outside and ("const" in outside or "__constant__" in outside)
    )
    if not (constant and initialised):
        _refuse(token, f"{_STATE}; constants are const or constexpr and initialised, functions have a body")


def _declaration_end(code: Sequence[Token], index: int) -> tuple[int, bool]:
    initialised = False
    position = index
    while position < len(code) and code[position].text != ";":
        initialised = initialised or code[position].text in ("=", "{")
        if code[position].text in ("(", "[", "{"):
            position = closing(code, position)
        position += 1
    return min(position, len(code)), initialised


def _outside_brackets(tokens: Sequence[Token]) -> list[Token]:
    kept, position = [], 0
    while position < len(tokens):
        kept.append(tokens[position])
        if tokens[position].text in ("(", "[", "{"):
            position = closing(tokens, position)
        position += 1
    return kept


def _texts(code: Sequence[Token], start: int, count: int) -> list[str]:
    return [token.text for token in code[start : start + count]]


def _refuse(token: Token, reason: str) -> NoReturn:
    raise InvalidProgram(
        f"line {token.line}: {token.text} is not allowed: {reason}", field="program", value=token.text, limit=reason
    )
