"""What a kernel program may not contain: state between launches, clocks, other launches, allocation, output.

A static check on tokens. It protects the measurement and makes cheating plain to read; it does **not** protect the
evaluator's process (the sandbox does), does not bound compile time (the compiler's time limit does), and cannot see a
constant that is written to through a cast (the flow of addresses through the PTX does).
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from sparsesmith.program.restrictions.assembly import check_assembly
from sparsesmith.program.restrictions.state import check_persistent_state
from sparsesmith.program.restrictions.tokens import SourceTokens, Token, check_brackets, refuse_token

_CLOCK = "clocks and positions could tell a timed run from a checked one"
_ALLOCATION = "device memory may not be allocated: use scratch, shared memory or registers"
_LAUNCH = "only the program's launch lines launch kernels"
_OUTPUT = "a kernel writes to its output only"
_STATE = "nothing may outlive a launch but the output and scratch"
_OUTSIDE = "the text may not look outside itself"
_GRID = "kernels are not launched cooperatively: a barrier over the grid would never end"
_PASTED = "names must stand in the text as they are compiled"
_DISGUISE = "declarations must be plain"

_NAMES: Sequence[tuple[str, str]] = [
    (r"\w*[cC]lock\w*|\w*CLOCK\w*|\w*globaltimer\w*|chrono|get_sreg\w*|\w*smid", _CLOCK),
    (r"\w*(malloc|alloca)\w*|_*(builtin_)?free|calloc|realloc|new|delete", _ALLOCATION),
    (r"_*cu(da)?[A-Z]\w*", _LAUNCH),
    (r"\w*printf\w*|assert|__assert\w*|puts|putchar", _OUTPUT),
    (r"__managed__|thread_local|__thread(__)?|mutable|const_cast", _STATE),
    (
        r"__has_(include|embed)(_next)?|_Pragma|__pragma|import|export|source_location|__builtin_(FILE|LINE)\w*",
        _OUTSIDE,
    ),
    (r"this_(multi_)?grid|(multi_)?grid_group|details?", _GRID),
    (r"__attribute(__)?|__declspec|__location__|__annotate__|__device_builtin__|__cudart_builtin__", _DISGUISE),
    # Macros of the headers: some declare variables on the device, others tell names of files.
    (r"_+[A-Z]\w*|(CUB|CCCL|THRUST|LIBCUDACXX)_\w*", _DISGUISE),
]
_NAME_CHECKS = [(re.compile(pattern), reason) for pattern, reason in _NAMES]

_PREDEFINED = frozenset(
    {"__CUDA_ARCH__", "__CUDACC__", "__CUDACC_RTC__", "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__VA_ARGS__"}
)

_DECLARING = frozenset({"__global__", "__device__", "__constant__", "__managed__", "static", "extern"})
_KEYWORDS = frozenset(
    {"asm", "auto", "char", "const", "constexpr", "double", "extern", "float", "half", "int", "long", "operator"}
    | {"short", "signed", "static", "struct", "unsigned", "using", "void", "volatile"}
)


def check_restrictions(source: SourceTokens) -> None:
    """Raises InvalidProgram with the line and the reason."""
    for token in source.everywhere():
        _check_token(token)
    macros = frozenset(line.tokens[0].text for line in source.preprocessor if line.name == "define" and line.tokens)
    for line in source.preprocessor:
        if line.name == "define":
            _check_macro(line.tokens)
        check_brackets(line.tokens)
        check_assembly(line.tokens, macros)
    check_brackets(source.code)
    check_assembly(source.code, macros)
    check_persistent_state(source)


def _check_token(token: Token) -> None:
    if token.text == "<<<":
        refuse_token(token, _LAUNCH)
    if token.text == "##":
        refuse_token(token, _PASTED)
    if token.kind == "name" and (reason := _reason_against(token.text)) is not None:
        refuse_token(token, reason)


@lru_cache(1 << 12)
def _reason_against(name: str) -> str | None:
    """Programs share most of their names."""
    if name in _PREDEFINED:
        return None
    return next((reason for pattern, reason in _NAME_CHECKS if pattern.fullmatch(name)), None)


def _check_macro(tokens: Sequence[Token]) -> None:
    if tokens and (tokens[0].text.startswith("__") or tokens[0].text in _KEYWORDS):
        refuse_token(tokens[0], "reserved names may not be redefined")
    for token in tokens[1:]:
        if token.text in _DECLARING:
            refuse_token(token, "declarations may not hide in macros")
