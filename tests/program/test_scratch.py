"""Scratch that a program asks for itself: how a line is read, what it may ask for, what it becomes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import FORMATS
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.program.binding import BoundBuffer, BoundProgram, bind
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith.program.scratch import LEAST_BYTES_ALLOWED, TYPE_BYTES, parse_scratch
from sparsesmith_proto.kernel import Workload
from tests.program.programs import SIGNATURE, make_program


def parsed(*lines: str, arguments: str = "") -> KernelProgram:
    before = "".join(f"//@ scratch {line}\n" for line in lines)
    return parse_program(make_program(before=before, signature=SIGNATURE + arguments), "spmv", "float32")


def diagonal(size: int) -> Pattern:
    return pattern_from_indices(size, size, np.arange(size), np.arange(size))


def bound(program: KernelProgram, pattern: Pattern) -> BoundProgram:
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    return bind(program, FORMATS["csr"].build(pattern, program.parameters), workload, pattern, num_sms=132)


def test_scratch_is_the_last_argument_of_every_kernel_and_a_buffer_of_so_many_bytes() -> None:
    program = parsed("sums = 2 * num_sms", "marks=nnz unsigned  char", arguments=", float* sums, unsigned char* marks")
    assert [(argument.c_type, argument.name) for argument in program.signature[-2:]] == [
        ("float*", "sums"),
        ("unsigned char*", "marks"),
    ]
    plan = bound(program, diagonal(301))
    assert plan.own_scratch == {"sums": 264 * 4, "marks": 304}
    assert plan.buffers[-2:] == (BoundBuffer("sums", "scratch", 264 * 4), BoundBuffer("marks", "scratch", 304))
    assert all(buffer.is_writable for buffer in plan.buffers[-2:])


@given(st.sampled_from(sorted(TYPE_BYTES)), st.sampled_from(["n", "7", "max(n, 7)", "(n + 1) * 2", "ceil_div(n,4)"]))
def test_a_type_is_told_from_the_length_before_it(c_type: str, length: str) -> None:
    line = parse_scratch(f"a = {length} {c_type}", 1)
    assert (line.length.text, line.c_type) == (length, c_type)


@given(st.text(max_size=60))
def test_any_line_is_understood_or_refused(text: str) -> None:
    for rest in (text, f"a = {text}", f"a = n {text}", f"{text} = n"):
        try:
            parse_scratch(rest, 1)
        except InvalidProgram as refusal:
            assert refusal.message


@pytest.mark.parametrize(
    ("line", "message", "value"),
    [
        ("", "is not NAME = EXPRESSION", ""),
        ("sums num_rows", "is not NAME = EXPRESSION", "sums num_rows"),
        ("sums =", "is not NAME = EXPRESSION", "sums ="),
        ("2sums = nnz", "'2sums' is not the name of scratch", "2sums"),
        (f"{'s' * 65} = nnz", "is not the name of scratch", "s" * 65),
        ("sums = nnz half", "unknown type 'half' (expected: float, double, int", "half"),
        ("sums = nnz float*", "unexpected 'float'", None),
        ("sums = float", "unknown name 'float'", "float"),
        ("sums = width", "unknown name 'width'", "width"),
        ("y = nnz", "there is another argument 'y'", "y"),
        ("nnz = 1", "there is another argument 'nnz'", "nnz"),
        ("sums = -1", "unexpected '-'", None),
        ("sums = 0 - 1", "sums has -1 elements, must be from 0", "-1"),
        (f"sums = {'1 + ' * 100}1", "401 characters (expected: <= 256)", "401"),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_its_value(line: str, message: str, value: str | None) -> None:
    with pytest.raises(InvalidProgram) as refusal:
        parsed(line, arguments=", float* sums")
    assert message in refusal.value.message
    assert value is None or refusal.value.value == value


def test_a_name_is_given_once_and_lines_are_eight() -> None:
    with pytest.raises(InvalidProgram, match="another argument 'sums'"):
        parsed("sums = 1", "sums = 2", arguments=", float* sums")
    with pytest.raises(InvalidProgram, match="9 `//@ scratch` lines: at most 8"):
        parsed(*(f"s{number} = 1" for number in range(9)))


def test_a_kernel_must_declare_it() -> None:
    with pytest.raises(InvalidProgram, match="argument 9 must be `float\\* sums`, nothing is declared"):
        parsed("sums = nnz")
    with pytest.raises(InvalidProgram, match="argument 9 must be `int\\* sums`, `float\\* sums` is declared"):
        parsed("sums = nnz int", arguments=", float* sums")


def test_scratch_is_bounded_in_bytes_by_64_mib_or_the_other_buffers() -> None:
    small = diagonal(1000)
    words = LEAST_BYTES_ALLOWED // 4
    plan = bound(parsed(f"sums = {words}", arguments=", float* sums"), small)
    assert sum(plan.own_scratch.values()) == LEAST_BYTES_ALLOWED
    with pytest.raises(InvalidProgram) as refusal:
        bound(parsed("few = 1", f"sums = {words}", arguments=", float* few, float* sums"), small)
    found = (refusal.value.field, refusal.value.value, refusal.value.limit)
    assert found == ("scratch.sums", str(LEAST_BYTES_ALLOWED + 4), str(LEAST_BYTES_ALLOWED))
    large = diagonal(4_000_000)
    beside = 4 * (5 * large.nnz + 1)
    plan = bound(parsed("sums = nnz double", "more = 2 * nnz", arguments=", double* sums, float* more"), large)
    assert sum(plan.own_scratch.values()) == 64_000_000 <= LEAST_BYTES_ALLOWED < beside
    with pytest.raises(InvalidProgram, match=f"takes {beside + 4} bytes .* at most {beside}"):
        bound(parsed("sums = 5 * nnz + 2", arguments=", float* sums"), large)


def test_a_length_below_zero_on_this_matrix_is_refused_and_one_of_zero_is_none() -> None:
    program = parsed("sums = num_rows - 300", arguments=", float* sums")
    assert bound(program, diagonal(300)).own_scratch == {"sums": 0}
    with pytest.raises(InvalidProgram, match="line 3: scratch sums has -1 elements, must be from 0"):
        bound(program, diagonal(299))
