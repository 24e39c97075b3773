"""Candidates that leave numbers open: filled in before anything is compiled, refused by line, value and limit."""

from collections.abc import Iterator

import pytest

from services.evaluator.candidates import Parsed, fill_numbers, parse_candidates
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from sparsesmith.families import propose
from sparsesmith.formats.format import ParameterValue
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, Passed, Rejected, UserWritten
from tests.evaluator.grading_tools import Evaluator, make_evaluator, make_pattern, make_workload

PATTERN = make_pattern()
WORKLOAD = make_workload(PATTERN)
PROBLEM = Problem(WORKLOAD, PATTERN)
LONGEST = int(PATTERN.row_lengths.max())
OPEN_PROGRAM = """//@ let WIDTH = row_length_max
//@ tune BLOCK = 64 2048 32
//@ format ell
//@ require width=WIDTH
//@ launch spmv grid=ceil_div(num_rows,BLOCK) block=BLOCK
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, int width, int stride, const int* col_indices,
                                const float* values, const float* x, float* y) {
  int row = blockIdx.x * BLOCK + threadIdx.x;
  if (row >= num_rows) return;
  float sum = 0;
  #pragma unroll
  for (int k = 0; k < WIDTH; k++) sum += values[k * stride + row] * x[col_indices[k * stride + row]];
  y[row] = sum;
}
"""


def candidate(text: str, candidate_id: str, /, **settings: ParameterValue) -> Candidate:
    return Candidate(candidate_id=candidate_id, program=text, origin=UserWritten(), settings=settings)


def parsed(*candidates: Candidate) -> list[Parsed]:
    return list(parse_candidates(fill_numbers(candidates, PROBLEM, 132), PROBLEM))


def bound_alone(text: str, **settings: ParameterValue) -> tuple[Candidate, Rejected | None]:
    (each,) = parsed(candidate(text, "one", **settings))
    return each.candidate, each.program if isinstance(each.program, Rejected) else None


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits())
    with Compiler(1, timeout_s=120) as compiler:
        yield make_evaluator(process, compiler)
    process.close()


def test_what_is_graded_is_a_program_of_plain_numbers_and_what_was_written_stays_beside_it() -> None:
    filled, refused = bound_alone(OPEN_PROGRAM, BLOCK=32)
    assert refused is None
    assert f"//@ require width={LONGEST}\n//@ launch spmv grid=ceil_div(num_rows,32) block=32\n" in filled.program
    assert "//@ let" not in filled.program
    assert (filled.written, filled.settings) == (OPEN_PROGRAM, {"BLOCK": 32})


def test_a_candidate_that_leaves_nothing_open_is_left_alone() -> None:
    plain = candidate("//@ format csr\r\nno program at all: let it be tuned", "one")
    (filled,) = fill_numbers([plain], PROBLEM, 132)
    assert (filled.candidate, filled.in_place, filled.refused) == (plain, "", None)


def test_a_models_raw_answer_is_filled_in_as_well() -> None:
    filled, refused = bound_alone(f"Here it is:\n```cuda\n{OPEN_PROGRAM}```\nIt is fast.")
    assert refused is None
    assert filled.program.startswith("//@ format ell")


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({}, {"BLOCK": 2048}, "line 5: launch spmv: block.x is 2048, must be from 1 to 1024"),
        ({}, {"BLOCK": 65}, "no knob BLOCK with the value 65 (known: 64, 2048, 32)"),
        ({"row_length_max": "longest"}, {}, "line 1: unknown fact 'longest'"),
        ({"2048": "64"}, {}, "line 2: knob BLOCK has 64 twice"),
        ({"BLOCK =": "WIDTH ="}, {}, "line 2: WIDTH was named in line 1 already"),
        ({"let WIDTH": "let stride"}, {}, "line 1: stride is an argument of the kernels"),
        ({"width=WIDTH": "height=WIDTH"}, {}, "line 4: unknown size 'height'"),
        ({"float sum = 0;": "clock();"}, {}, "line 10: clock is not allowed"),
    ],
)
def test_what_is_refused_names_the_line_as_it_was_written(
    changes: dict[str, str], settings: dict[str, ParameterValue], message: str
) -> None:
    text = OPEN_PROGRAM
    for old, new in changes.items():
        text = text.replace(old, new)
    _, refused = bound_alone(text, **settings)
    assert refused is not None
    assert message in refused.message


def test_a_setting_beyond_a_launch_limit_is_refused_and_the_others_are_not() -> None:
    candidates = [candidate(OPEN_PROGRAM, str(block), BLOCK=block) for block in (64, 2048, 32)]
    assert [isinstance(each.program, Rejected) for each in parsed(*candidates)] == [False, True, False]


def test_an_open_program_of_every_family_that_has_facts_passes(evaluator: Evaluator) -> None:
    first = {
        each.family: each for each in reversed(propose(PATTERN, "spmv", "float32", limit=400)) if each.open_program
    }
    assert {"row_bins", "ell_fixed"} <= set(first)
    for instance in first.values():
        filled, refused = bound_alone(instance.written)
        assert refused is None
        assert filled.program == instance.program
        assert isinstance(evaluator.outcome(filled.program), Passed)


def test_a_users_open_program_passes(evaluator: Evaluator) -> None:
    assert isinstance(evaluator.outcome(bound_alone(OPEN_PROGRAM)[0].program), Passed)
