"""Text from models, compilers and servers, made safe to print."""

import re

_CONTROL = re.compile(r"[^\t\n\x20-\x7e\xa0-\U0010ffff]")


def visible(text: str) -> str:
    """The text without control characters: a terminal would obey them."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
