"""Lanes of a row that are no power of two: ten rows of three lanes in a warp, two lanes idle.

A group sums by halves of the next power of two, and what lies beyond its end is not added.
"""

from collections.abc import Iterator

from sparsesmith.families import FAMILIES
from sparsesmith.families.text.program import Choice, with_values
from sparsesmith.families.text.template import cuda_beside
from sparsesmith.mutation.child import Child
from sparsesmith.mutation.edits import Edit, edited, launch_line
from sparsesmith.mutation.phrases import Phrase
from sparsesmith.mutation.subject import Subject, subject_of

_CUDA = cuda_beside(__name__)
LANES = (3, 5, 6, 7, 10, 12)
FAMILY = "csr_vector"
_ROW = Phrase("int row = (blockIdx.x * BLOCK + threadIdx.x) / LANES; int lane = threadIdx.x % LANES;")
_SUM = Phrase("for (int step = HALF; step >= 1; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);")


def odd_lanes(subject: Subject) -> Iterator[Child]:
    """A program of lanes a row with another number of them."""
    instance = subject.instance
    if instance is None or instance.family != FAMILY:
        return
    choice = Choice(
        instance.parameters, subject.element_type, subject.num_dense_cols, subject.operation, FAMILIES[FAMILY].format
    )
    for lanes in LANES:
        text = _written(subject, with_values(choice, lanes=lanes))
        if text:
            yield Child(f"lanes {lanes}", text)


def _written(subject: Subject, choice: Choice) -> str:
    """The family's text for so many lanes, with what it takes for granted of powers of two put right."""
    lanes, block = choice.integer("lanes"), choice.integer("block")
    draft = subject_of(FAMILIES[FAMILY].write(choice), subject.pattern, subject.operation, subject.element_type)
    rows, sums = list(_ROW.find(draft.code)), list(_SUM.find(draft.code))
    if len(rows) != 1 or len(sums) != 1:
        return ""
    start, end, launch = draft.launch_lines[0]
    per_warp = 32 // lanes
    places = {"groups": per_warp, "used": per_warp * lanes, "half": 1 << (lanes - 1).bit_length() - 1}
    row, sum_ = (choice.fill(_CUDA[section], **places) for section in ("row", "sum"))
    grid = launch_line(launch, grid=f"ceil_div(num_rows,{block // 32 * per_warp})")
    pragma = next(line for line in draft.pragmas("unroll") if line.line == draft.code[sums[0].first].line - 1)
    above = draft.text.rfind("\n", 0, pragma.tokens[0].start) + 1
    return edited(
        draft.text,
        [
            Edit(start, end, grid),
            Edit(draft.code[rows[0].first].start, draft.code[rows[0].past - 1].end, row),
            Edit(above, draft.code[sums[0].past - 1].end, sum_),
        ],
    )
