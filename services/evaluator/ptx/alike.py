"""Whether a PTX text holds anything that another reader could take for something else.

Comments and strings are where readers differ. A text without block comments, whose line comments are plain and whose
strings are names of source files and the one allowed pragma, is the same sequence of words to every reader: machine
code that the compiler itself made of it is machine code of what was read.

What this does not say: whether the text is within the language that is read here (`read_module` does).
"""

import re

_FIXED = re.compile(
    r"""^[ \t]*\.file[ \t]+\d+[ \t]+"[\w./+-]*"(?:[ \t]*,[ \t]*\d+){0,2}[ \t]*$"""
    r"""|^[ \t]*\.pragma[ \t]+"nounroll";[ \t]*$"""
    r"""|^[ \t]*\.section[ \t]+\.debug_\w+\s*\{[\w\s$.:,+-]*\}""",
    re.MULTILINE,
)
"""What holds strings, and sections of line information, which no kernel runs."""
_DOUBTFUL = re.compile(r"""["'\\#`]|/\*|\*/|\.section|[^\n\t -~]""")


def is_read_alike(text: str) -> bool:
    return _DOUBTFUL.search(_FIXED.sub("", text.rstrip("\0"))) is None
