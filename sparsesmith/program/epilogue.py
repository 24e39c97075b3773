"""A program that computes y = A x, compiled to y = alpha A x + beta y: what it stores goes through a place.

Every launched kernel takes two more numbers behind its other arguments. In its body the output's name stands for a
place that has `y[i] = sum` and `atomicAdd(y + i, sum)` and nothing else: a program that reads its output, uses what an
addition returns, stores in vectors or hands its output on does not compile this way. The store brings beta y, what is
added atomically afterwards is scaled by alpha alone: right for a program that stores each element once (0, or a first
sum) before it adds to it. One that stores an element twice compiles and is wrong (the second store reads what the first
wrote): whoever launches it compares it with the plain program first.
"""

from collections.abc import Sequence
from string import Template

from sparsesmith.elements import ELEMENTS, c_type, sum_c_type
from sparsesmith.errors import InvalidProgram
from sparsesmith.program.program import KernelProgram
from sparsesmith.program.restrictions.tokens import Token, closing, tokenize
from sparsesmith_proto.message import ElementType

ALPHA, BETA = "sparsesmith_alpha", "sparsesmith_beta"
"""The arguments, of the type that products are summed in."""

_PLACES = Template("""
struct sparsesmith_added {
  $element* place;
  $sum alpha;
  __device__ __forceinline__ sparsesmith_added operator+(long long i) const { return {place + i, alpha}; }
};
__device__ __forceinline__ void atomicAdd(sparsesmith_added to, $sum part) {
  atomicAdd(to.place, $narrow(to.alpha * part));
}
struct sparsesmith_stored {
  $element* place;
  $sum alpha, beta;
  __device__ __forceinline__ void operator=($element stored) const {
    const $sum scaled = alpha * $widen(stored);
    *place = $narrow(beta == $sum(0) ? scaled : scaled + beta * $widen(*place));
  }
  void operator=(const sparsesmith_stored&) const = delete;
  __device__ __forceinline__ sparsesmith_added operator&() const { return {place, alpha}; }
};
struct sparsesmith_output {
  $element* data;
  $sum alpha, beta;
  __device__ __forceinline__ sparsesmith_stored operator[](long long i) const { return {data + i, alpha, beta}; }
  __device__ __forceinline__ sparsesmith_added operator+(long long i) const { return {data + i, alpha}; }
};
""")


def scaled_source(
    program: KernelProgram, output: str, element_type: ElementType, numbers: tuple[float, float] | None = None
) -> str:
    """What the compiler gets. `output`: the argument that results are stored to. `numbers`: alpha and beta where they
    are known; every kernel keeps its arguments then, and lines of a log are those of the program.

    Raises InvalidProgram where the text has these names already.
    """
    text = program.source.replace("\\\n", "")
    if "sparsesmith_" in text:
        taken = "sparsesmith_"
        raise InvalidProgram(f"the program uses names that begin with {taken}", field="program", value=taken)
    code = tokenize(text).code
    edits: list[tuple[int, int, str]] = []
    for kernel in dict.fromkeys(launch.kernel for launch in program.launches):
        edits += _edits(code, kernel, output, sum_c_type(element_type), numbers)
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    element = ELEMENTS[element_type]
    header = f"#include <{element.header}>\n" if element.header else ""
    places = _PLACES.substitute(
        element=c_type(element_type), sum=sum_c_type(element_type), widen=element.widen, narrow=element.narrow
    )
    return f"{header}{places}{'#line 1' if numbers else ''}\n{text}"


def _edits(
    code: Sequence[Token], kernel: str, output: str, sum_type: str, numbers: tuple[float, float] | None
) -> list[tuple[int, int, str]]:
    """Start, end and replacement of each piece of the kernel's head, and of the beginning of its body."""
    opening = _opening(code, kernel)
    end = closing(code, opening)
    named = next(token for token in reversed(code[opening:end]) if token.text == output)
    alpha, beta = (ALPHA, BETA) if numbers is None else (f"{sum_type}({number})" for number in numbers)
    place = f"const sparsesmith_output {output}{{sparsesmith_{output}, {alpha}, {beta}}};"
    return [
        (named.start, named.end, f"sparsesmith_{output}"),
        (code[end].start, code[end].start, "" if numbers else f", {sum_type} {ALPHA}, {sum_type} {BETA}"),
        (code[end + 1].end, code[end + 1].end, f" {place}"),
    ]


def _opening(code: Sequence[Token], kernel: str) -> int:
    """The bracket before the arguments of a kernel that is known to be defined once."""
    for index, token in enumerate(code):
        if token.text == kernel and code[index + 1].text == "(" and code[closing(code, index + 1) + 1].text == "{":
            return index + 1
    raise InvalidProgram(f"kernel {kernel} is not defined", field="launch", value=kernel)
