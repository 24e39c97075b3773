"""Broken, cheating and hostile programs through the real compiler and the real interpreter, in the sandbox.

Each file of tests/kernels/outcomes names the outcome it must get and words of its message; right after it, on the same
device, a good kernel must pass.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.evaluator.compilation import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.sandbox import DeviceProcess, StageLimits
from sparsesmith_proto.kernel import CompileFailed, Outcome, Passed
from tests.evaluator.grading_tools import COMPILE_LIMIT_S, Evaluator, make_evaluator

KERNELS = Path(__file__).parents[1] / "kernels" / "outcomes"
GOOD = (KERNELS / "scalar.cu").read_text()


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits())
    with Compiler(1, timeout_s=COMPILE_LIMIT_S) as compiler:
        yield make_evaluator(process, compiler)
    process.close()


def expectation(program: str) -> tuple[list[str], str]:
    """The outcomes a file allows and the words its message must have."""
    outcomes = program.partition("// outcome: ")[2].splitlines()[0].split()
    return outcomes, program.partition("// words: ")[2].splitlines()[0].strip()


def message_of(outcome: Outcome) -> str:
    match outcome:
        case Passed():
            return ""
        case CompileFailed():
            return outcome.log
        case _:
            return outcome.message


@pytest.mark.parametrize("path", sorted(KERNELS.glob("*.cu")), ids=lambda path: path.stem)
def test_a_program_gets_its_outcome_and_the_next_one_a_clean_device(evaluator: Evaluator, path: Path) -> None:
    program = path.read_text()
    allowed, words = expectation(program)
    outcome = evaluator.outcome(program)
    assert (outcome.outcome in allowed, words in message_of(outcome)) == (True, True), outcome
    assert isinstance(evaluator.outcome(GOOD), Passed)


NO_PROGRAMS = ["", "\x00", GOOD.replace("sum", "s\x00m"), GOOD.replace("sum", "s\ud800m"), "no kernel here"]


@pytest.mark.parametrize("text", NO_PROGRAMS)
def test_text_that_is_no_program_is_rejected(evaluator: Evaluator, text: str) -> None:
    assert evaluator.outcome(text).outcome == "rejected"
    assert isinstance(evaluator.outcome(GOOD), Passed)


@pytest.mark.parametrize("name", ["out_of_bounds_write", "endless_loop", "deadlock", "race"])
def test_a_finding_names_line_block_and_thread(evaluator: Evaluator, name: str) -> None:
    message = message_of(evaluator.outcome((KERNELS / f"{name}.cu").read_text()))
    assert all(word in message for word in ("line ", "block (", "thread (")), message


def test_raw_model_text_around_a_program_does_no_harm(evaluator: Evaluator) -> None:
    outcome = evaluator.outcome(f"Here is the kernel:\n```cuda\n{GOOD}```\nIt is fast.")
    assert isinstance(outcome, Passed)
