"""The characters of PTX: comments and strings as the assembler reads them, and nothing that could be read otherwise.

A quote inside a comment is part of the comment, what looks like a comment inside a string is part of the string. A
lone quote, a comment without an end, a backslash, a `#` (the assembler's line markers) and characters beyond ASCII are
refused: they have no place in what a compiler writes.
"""

import re

MAX_TEXT_BYTES = 8 << 20

_SPECIAL = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|"|/\*', re.DOTALL)
_STRANGE = re.compile(r"[^\t\n\r !$-\[\]^_`a-z{|}~\"]")
"""What no code outside strings may hold: controls, `#`, backslashes, anything beyond ASCII."""


class MalformedPtx(Exception):
    """Text outside the language that is read here; the message names what, and near which line of the program."""


def without_comments(text: str) -> str:
    """The text with a blank for each comment; strings stay. Raises MalformedPtx for what is neither."""
    if len(text) > MAX_TEXT_BYTES:
        raise MalformedPtx(f"PTX of {len(text)} bytes is over the limit of {MAX_TEXT_BYTES}")
    plain = _SPECIAL.sub(_plain, text.rstrip("\0"))
    strange = _STRANGE.search(plain)
    if strange:
        raise MalformedPtx(f"the character {strange.group()!r} stands in the code")
    return plain


def _plain(found: re.Match[str]) -> str:
    piece = found.group()
    if piece == '"':
        raise MalformedPtx("a string does not end in its line")
    if piece == "/*":
        raise MalformedPtx("a comment does not end")
    return piece if piece[0] == '"' else " "
