"""Headers that a kernel program may include. Any other file could leak into the compiler's log, or be anything."""

import re
from typing import NoReturn

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.restrictions.tokens import PreprocessorLine, SourceTokens

HEADERS = frozenset(
    {
        "cuda_fp16.h",
        "cuda_bf16.h",
        "cooperative_groups.h",
        "cooperative_groups/memcpy_async.h",
        "cooperative_groups/reduce.h",
        "cooperative_groups/scan.h",
        "cuda/atomic",
        "cuda/barrier",
        "cuda/pipeline",
    }
)
"""Besides these: cub/warp/*.cuh and cub/block/*.cuh."""

_CUB = re.compile(r"cub/(warp|block)/[a-z_]+\.cuh")
_INCLUDE = re.compile(r"[ \t]*#[ \t]*include[ \t]*(?:<([A-Za-z0-9_./]+)>|\"([A-Za-z0-9_./]+)\")[ \t]*(?://.*)?")

_DIRECTIVES = frozenset(
    {"define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error", "include", "pragma", ""}
)


def check_includes(source: SourceTokens) -> None:
    """Raises InvalidProgram for an include outside the list and for other directives that reach outside the text."""
    for line in source.preprocessor:
        if line.name not in _DIRECTIVES:
            _refuse(line, f"#{line.name} is not allowed", ", ".join(sorted(_DIRECTIVES - {""})))
        if line.name == "include":
            _check_include(line)
        if line.name == "pragma" and (not line.tokens or line.tokens[0].text not in ("unroll", "once")):
            _refuse(line, "only #pragma unroll is allowed", "unroll")


def _check_include(line: PreprocessorLine) -> None:
    match = None if line.spliced else _INCLUDE.fullmatch(line.text)
    header = (match[1] or match[2]) if match else None
    if header is None:
        _refuse(line, "#include must name a header of the list, in one line", "<HEADER>")
    if header not in HEADERS and not _CUB.fullmatch(header):
        allowed = ", ".join([*sorted(HEADERS), "cub/warp/*.cuh", "cub/block/*.cuh"])
        _refuse(line, f"#include <{header}> is not allowed (allowed: {allowed})", allowed)


def _refuse(line: PreprocessorLine, reason: str, limit: str) -> NoReturn:
    raise InvalidProgram(f"line {line.line}: {reason}", field="include", value=line.text.strip()[:200], limit=limit)
