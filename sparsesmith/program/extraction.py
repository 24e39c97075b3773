"""From raw model text to the kernel program in it: reasoning, prose, Markdown fences and leftovers are dropped."""

import re

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.directives import is_directive

MAX_RAW_CHARACTERS = 1 << 20
"""Of longer text only the end is looked at: an answer follows its reasoning."""

_REASONING_END = "</think>"
_KERNEL = "__global__"
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_PREAMBLE_LINE = re.compile(r"[ \t]*(?:#[ \t]*[a-z]+\b|//|/\*|\*|\*/|$)")
_CODE_START = re.compile(
    r'\s*(?:#[ \t]*(?:include|define|pragma|if|ifdef|ifndef)\b|//|/\*|extern[ \t]+"C"|__|template\s*<)'
)
_SKIPPED = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\"(?:[^\"\\\n]|\\.)*\"?|'(?:[^'\\\n]|\\.){1,4}'|[{}]", re.DOTALL)
_TRAILER_LINE = re.compile(r"[ \t]*(?:;|#[ \t]*(?:endif|undef)\b.*|//.*)?[ \t]*$")


def extract_program(raw_text: str) -> str:
    """The kernel program in raw model text, ending in a line break. A program by itself is kept whole.

    The last fenced block with a directive wins; without one, the text from the first directive (and the preprocessor
    lines and comments above it) to the end of the last top-level function. Whether the program is legal is not looked
    at. Raises InvalidProgram where there is no directive.
    """
    text = raw_text[-MAX_RAW_CHARACTERS:].replace("\r\n", "\n").removeprefix("\ufeff")
    text = _behind_reasoning(text)
    for block in reversed(_fenced_blocks(text)):
        if _has_directive(block):
            return _without_blank_ends(block)
    if not _has_directive(text):
        raise InvalidProgram(
            "the text holds no kernel program: no line begins with //@", field="program", limit="a //@ format line"
        )
    # A fence after the program closes one that the prompt opened.
    before_fence = _FENCE.split(text, maxsplit=1)[0]
    return _without_blank_ends(_code_region(before_fence if _has_directive(before_fence) else text))


def _behind_reasoning(text: str) -> str:
    """What follows the reasoning: behind the last end of it that a whole program follows, which a comment that holds
    the word does not cut off."""
    answer = text.rpartition(_REASONING_END)[2]
    return answer if _has_directive(answer) and _KERNEL in answer else text


def _fenced_blocks(text: str) -> list[str]:
    """Contents of Markdown fences; one that is not closed reaches to the end of the text."""
    blocks: list[list[str]] = []
    inside = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            inside = not inside
            if inside:
                blocks.append([])
        elif inside:
            blocks[-1].append(line)
    return ["\n".join(block) for block in blocks]


def _has_directive(text: str) -> bool:
    return any(is_directive(line) for line in text.split("\n"))


def _code_region(text: str) -> str:
    lines = text.split("\n")
    start = next(number for number, line in enumerate(lines) if is_directive(line))
    if _CODE_START.match(text):
        start = 0
    while start > 0 and _PREAMBLE_LINE.match(lines[start - 1]):
        start -= 1
    code = "\n".join(lines[start:])
    end = _end_of_last_block(code)
    return code if end is None else _with_trailer(code, end)


def _end_of_last_block(code: str) -> int | None:
    """Position after the last `}` that closes a top-level block; None where no block closes (a truncated program)."""
    depth, end = 0, None
    for match in _SKIPPED.finditer(code):
        if match.group() == "{":
            depth += 1
        elif match.group() == "}":
            depth -= 1
            if depth == 0:
                end = match.end()
            if depth < 0:
                break
    truncated = depth > 0 and _KERNEL in code[end or 0 :]
    return None if truncated else end


def _with_trailer(code: str, end: int) -> str:
    """The code up to `end` and the lines after it that still belong to it: `;`, #endif, comments, directives."""
    head, *rest = code[end:].split("\n")
    kept = [code[:end] + (head if _TRAILER_LINE.match(head) else "")]
    for line in rest:
        if not _TRAILER_LINE.match(line):
            break
        kept.append(line)
    return "\n".join(kept)


def _without_blank_ends(program: str) -> str:
    return program.strip("\n").rstrip() + "\n"
