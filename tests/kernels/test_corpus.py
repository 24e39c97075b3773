"""What can be told of the corpus without running it: who is rejected, who does not compile."""

from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest

from services.evaluator.compiling.compiler import Compiled, CompileError, Compiler
from services.evaluator.compiling.contract.breach import breach
from sparsesmith.errors import InvalidProgram, Unavailable
from sparsesmith.formats import FORMATS
from sparsesmith.matrix.pattern import pattern_from_indices
from sparsesmith.operations import Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import Outcome, Workload
from tests.kernels.corpus import CorpusProgram, corpus

COMPILE_LIMIT_S = 6.0
PATIENCE_S = 120.0
"""For programs that do compile, on a machine that does more than this."""
OUTCOMES = {get_args(kind.model_fields["outcome"].annotation)[0] for kind in get_args(get_args(Outcome)[0])}


def by_name(programs: list[CorpusProgram]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", programs, ids=[program.name for program in programs])


def accepted(program: CorpusProgram) -> KernelProgram:
    """Parses, and binds it to a matrix of 5,000 rows: few enough for formats of a bit an entry."""
    parsed = parse_program(extract_program(program.text), program.operation, program.element_type)
    diagonal = np.arange(5_000)
    pattern = pattern_from_indices(5_000, 5_000, diagonal, diagonal)
    workload = Workload(
        pattern=pattern.digest,
        operation=program.operation,
        element_type=program.element_type,
        num_dense_cols=program.num_dense_cols,
    )
    bind(parsed, parsed.format.build(pattern, parsed.parameters), Problem(workload, pattern), 132)
    return parsed


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    try:
        with Compiler(1, timeout_s=PATIENCE_S) as compiler:
            yield compiler
    except Unavailable as missing:
        pytest.skip(missing.message)


@pytest.fixture(scope="module")
def hasty(compiler: Compiler) -> Iterator[Compiler]:
    with Compiler(1, timeout_s=COMPILE_LIMIT_S) as hasty:
        yield hasty


def test_there_is_a_good_program_for_every_format() -> None:
    assert {accepted(program).format.name for program in corpus("good")} == set(FORMATS)


def test_expectations_are_outcomes() -> None:
    assert {outcome for program in corpus() for outcome in program.expected} <= OUTCOMES
    assert {program.expected for program in corpus("good")} == {("passed",)}


SEEN_IN_THE_MACHINE_CODE = {
    "broken/bulk_copy_not_waited_for",
    "broken/bulk_store_not_waited_for",
    "broken/constant_load_of_own_writes",
    "broken/null_pointer",
    "broken/register_never_set",
    "broken/register_set_on_one_path",
    "broken/shared_memory_never_written",
    "broken/uninitialised_stack",
    "cheating/address_read_beyond_a_parameter",
    "cheating/address_told_by_a_copy",
    "cheating/address_told_by_a_place_in_shared_memory",
    "cheating/address_told_by_a_shuffle",
    "cheating/breakpoint_by_a_function",
    "cheating/endless_recursion",
    "cheating/huge_local_array",
    "cheating/huge_stack_frame",
    "cheating/indices_rewritten",
    "cheating/input_chosen_and_restored",
    "cheating/input_overwritten",
    "cheating/input_reached_from_the_output",
    "cheating/input_restored_by_a_function",
    "cheating/input_restored_in_assembly",
    "cheating/input_restored_through_memory",
    "cheating/input_written_and_restored",
    "cheating/input_written_by_atomics",
    "cheating/matrix_overwritten",
    "cheating/matrix_written_by_the_tensor_cores",
    "cheating/output_written_before_the_wait",
    "cheating/phase_told_by_a_counter_of_a_given_number",
    "cheating/profiler_event_by_a_function",
    "cheating/reference_read_at_a_fixed_address",
    "cheating/replay_by_pointer",
    "cheating/result_cached_at_telling_addresses",
    "cheating/result_cached_by_a_laundered_pointer",
    "cheating/result_cached_in_a_constant",
    "cheating/result_kept_behind_the_guard_at_an_address",
    "cheating/result_left_in_local_memory",
    "cheating/vector_read_before_the_wait",
    "cheating/wait_by_a_second_result",
    "cheating/wait_by_looking_at_x",
    "cheating/wait_by_sleeping",
    "cheating/wait_skipped_where_nothing_is_nan",
}
REJECTED = [program for program in corpus() if program.expected == ("rejected",)]


@by_name([program for program in REJECTED if program.name not in SEEN_IN_THE_MACHINE_CODE])
def test_a_program_outside_the_contract_is_rejected_before_it_is_compiled(program: CorpusProgram) -> None:
    with pytest.raises(InvalidProgram):
        accepted(program)


@by_name([program for program in REJECTED if program.name in SEEN_IN_THE_MACHINE_CODE])
def test_a_program_outside_the_contract_is_rejected_before_it_runs(program: CorpusProgram, compiler: Compiler) -> None:
    parsed = accepted(program)
    result = compiler.compile(parsed.source, "sm_90")
    assert isinstance(result, Compiled)
    assert program.words in breach(parsed, result)


@by_name([program for program in corpus() if "rejected" not in program.expected])
def test_a_program_within_the_contract_compiles_unless_that_is_its_point(
    program: CorpusProgram, compiler: Compiler, hasty: Compiler
) -> None:
    is_bomb = {"compile_failed", "timed_out"} <= set(program.expected)
    result = (hasty if is_bomb else compiler).compile(accepted(program).source, "sm_90")
    match result:
        case Compiled():
            assert set(program.expected) != {"compile_failed"} and set(program.expected) != {
                "compile_failed",
                "timed_out",
            }
            assert result.facts.persistent_variables == ()
        case CompileError(reason="timeout"):
            assert "timed_out" in program.expected
        case CompileError():
            assert "compile_failed" in program.expected, result.log


def test_a_variable_hidden_from_the_text_is_found_in_the_ptx(compiler: Compiler) -> None:
    source = '__location__(device) int calls;\nextern "C" __global__ void k(int* y) { *y = calls++; }'
    result = compiler.compile(source, "sm_90")
    assert isinstance(result, Compiled)
    assert result.facts.persistent_variables == ("calls",)
