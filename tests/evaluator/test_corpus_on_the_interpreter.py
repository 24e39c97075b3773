"""The good programs of the corpus pass on the interpreter; state that hides from the text does not."""

from collections.abc import Iterator

import pytest

from services.evaluator.compilation import Compiled, Compiler
from services.evaluator.compile_ahead import CompilationsAhead
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.interpreter_device import InterpreterDevice
from services.evaluator.race import Race
from services.evaluator.workbench import LocalWorkbench
from sparsesmith.domain.program import parse_program
from sparsesmith_proto.kernel import Rejected
from tests.evaluator.grading_tools import COMPILE_LIMIT_S, make_candidate, make_pattern, make_workload
from tests.evaluator.misbehaving_device import program_text
from tests.kernels.corpus import CorpusProgram, corpus

NUM_DENSE_COLS = 8


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=COMPILE_LIMIT_S) as compiler:
        yield compiler


@pytest.mark.parametrize("program", corpus("good"), ids=lambda program: program.name)
def test_a_good_program_passes(program: CorpusProgram, compiler: Compiler) -> None:
    num_dense_cols = NUM_DENSE_COLS if program.operation == "spmm" else 1
    workload = make_workload(make_pattern(), program.operation, program.element_type, num_dense_cols)
    bench = LocalWorkbench(InterpreterDevice(), workload, make_pattern())
    with CompilationsAhead(compiler, "sm_90", COMPILE_LIMIT_S) as ahead:
        outcome = evaluate_kernel(make_candidate(program.text), workload, ahead.result, bench, Race(baseline_us=1e9))
    assert outcome.outcome == "passed", outcome


def test_state_that_the_text_does_not_show_is_rejected_before_it_runs(compiler: Compiler) -> None:
    program = parse_program(program_text("right"), "spmv", "float32")
    hidden = program.source.replace("extern", "__location__(device) int calls;\nextern", 1).replace(
        "{}", "{ calls++; }"
    )
    binary = compiler.compile(hidden, "sm_90")
    assert isinstance(binary, Compiled)
    pattern = make_pattern()
    verdict = LocalWorkbench(InterpreterDevice(), make_workload(pattern), pattern).check("kernel", program, binary)
    assert isinstance(verdict, Rejected)
    assert verdict.message.startswith("variables in global memory outlive a launch")
    assert verdict.message.endswith(": calls")
