"""Device memory that outlives a launch: a kernel program must have none, or it could replay earlier results.

Twice checked: here on the program's text, where the message can name the line and what to write instead, and on the
compiled PTX (services/evaluator/compiling/contract/facts.py), where nothing hides.
"""

from collections.abc import Iterator, Sequence

from sparsesmith.program.restrictions.tokens import SourceTokens, Token, closing, refuse_token

_REASON = (
    "nothing may outlive a launch but the output and scratch; "
    "constants are __constant__, const or constexpr and initialised, functions have a body"
)

_OPENING = ("(", "[", "{")
_CLOSING = (")", "]", "}")
_ATTRIBUTES = frozenset({"__launch_bounds__", "__align__", "alignas", "decltype", "explicit", "noexcept"})
_AFTER_FUNCTION_HEAD = frozenset({"{", ":", "->", "const", "noexcept"})

MAX_DECLARATION_TOKENS = 1024
"""Outside brackets. A longer declaration is refused: it is none."""


def check_persistent_state(source: SourceTokens) -> None:
    """Raises InvalidProgram for a declaration that is, or might by macros become, a variable that outlives a launch."""
    macros = {line.tokens[0].text for line in source.preprocessor if line.name == "define" and line.tokens}
    code = source.code
    for index, bracket in _declarations(code):
        token = code[index]
        if bracket in ("(", "["):
            refuse_token(token, "declarations may not stand in parentheses")
        declares_function = token.text != "__constant__" and _declares_function(code, index, macros)
        if not declares_function and not _declares_constant(code, index, macros):
            refuse_token(token, _REASON)


def _declarations(code: Sequence[Token]) -> Iterator[tuple[int, str]]:
    """Where `__device__`, `__constant__` and `static` stand, and the innermost bracket around them."""
    brackets: list[str] = []
    for index, token in enumerate(code):
        if token.text in _OPENING:
            brackets.append(token.text)
        elif token.text in _CLOSING:
            del brackets[-1:]
        elif token.text in ("__device__", "__constant__", "static"):
            yield index, brackets[-1] if brackets else ""


def _declares_function(code: Sequence[Token], index: int, macros: set[str]) -> bool:
    """Whether the declaration from `index` on is a function with a body, or a defaulted member."""
    position, angles = index + 1, 0
    while position < min(len(code), index + MAX_DECLARATION_TOKENS):
        text = code[position].text
        if text in macros:
            return False
        if text in _ATTRIBUTES and _texts(code, position + 1, 1) == ["("]:
            position = closing(code, position + 1)
        elif text == "operator":
            # The operator's own brackets are no argument list.
            position += 2 if _texts(code, position + 1, 2) in (["(", ")"], ["[", "]"]) else 1
        elif text == "(":
            after = _texts(code, closing(code, position) + 1, 2)
            return after[:1] != [] and (after[0] in _AFTER_FUNCTION_HEAD or after == ["=", "default"])
        elif text in (";", "=", "{", "}", "[", ")", "]") or (text == "," and angles == 0):
            return False
        angles += {"<": 1, ">": -1}.get(text, 0)
        position += 1
    return False


def _declares_constant(code: Sequence[Token], index: int, macros: set[str]) -> bool:
    """Whether the declaration is an initialised constant (or in shared memory, which no launch leaves behind)."""
    start = index
    while start > 0 and code[start - 1].text not in (";", "{", "}"):
        start -= 1
    end = _end(code, start)
    words = [token.text for token in _outside_brackets(code[start:end])]
    head = words[: next((n for n, word in enumerate(words) if word in ("=", "{")), len(words))]
    if macros.intersection(head):
        return False
    if "__shared__" in head:
        return True
    if len(head) == len(words):
        return False
    # `const int a = 1, *p` declares a pointer that may change.
    whole = {token.text for token in code[start:end]}
    plain = not {"*", "&"}.intersection(words) and not macros.intersection(whole)
    return "constexpr" in head or (plain and ("const" in head or "__constant__" in head))


def _end(code: Sequence[Token], start: int) -> int:
    """Position of the semicolon that ends a declaration."""
    position, num_tokens = start, 0
    while position < len(code) and code[position].text != ";":
        position = (closing(code, position) if code[position].text in _OPENING else position) + 1
        num_tokens += 1
        if num_tokens > MAX_DECLARATION_TOKENS:
            refuse_token(code[start], f"a declaration has more than {MAX_DECLARATION_TOKENS} tokens")
    return min(position, len(code))


def _outside_brackets(tokens: Sequence[Token]) -> Iterator[Token]:
    """Of what stands in brackets only the opening one."""
    position = 0
    while position < len(tokens):
        yield tokens[position]
        position = (closing(tokens, position) if tokens[position].text in _OPENING else position) + 1


def _texts(code: Sequence[Token], start: int, count: int) -> list[str]:
    return [token.text for token in code[start : start + count]]
