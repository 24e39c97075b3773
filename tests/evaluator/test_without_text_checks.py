"""The checks of texts switched off: what is beneath them holds every hostile program of the corpus by itself."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from services.evaluator.candidates import Parsed
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import InterpreterFactory
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess, StageLimits
from services.evaluator.race import Race
from sparsesmith.errors import InvalidProgram
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram, parse_program, unchecked_program
from sparsesmith_proto.kernel import Outcome, Passed, Timing
from tests.evaluator.grading_tools import COMPILE_LIMIT_S, make_candidate, make_pattern, make_workload
from tests.kernels.corpus import CorpusProgram, corpus, good_program

ROOT = Path(__file__).resolve().parents[2]
HARMLESS = {}
"""Programs that pass then, and why that does no harm."""


def is_refused_by_text(program: CorpusProgram) -> bool:
    """And by nothing that is said of its launches, without which there is no program."""
    kind = (program.operation, program.element_type)
    try:
        parse_program(program.text, *kind)
    except InvalidProgram:
        try:
            unchecked_program(program.text, *kind)
        except InvalidProgram:
            return False
        return True
    return False


REFUSED_BY_TEXT = [program for program in corpus("cheating") if is_refused_by_text(program)]


class Unchecked:
    """Evaluates programs as if their texts had passed every check."""

    def __init__(self, process: DeviceProcess, compiler: Compiler) -> None:
        self._process = process
        self._compiler = compiler
        self.timing_before = cache(self.timing)

    def outcome(self, program: CorpusProgram) -> Outcome:
        pattern = make_pattern(300, 301)
        workload = make_workload(
            pattern, program.operation, program.element_type, 8 if program.operation == "spmm" else 1
        )
        parsed = Parsed(make_candidate(program.text), self._read(program))
        bench = self._process.open(Problem(workload, pattern))
        with CompilationsAhead(self._compiler, "sm_90", COMPILE_LIMIT_S) as ahead:
            return evaluate_kernel(parsed, ahead.result, bench, Race(baseline_us=1e9))

    def timing(self, operation: str, element_type: str) -> Timing:
        """Of a good program; fails where it does not pass."""
        outcome = self.outcome(good_program(operation, element_type))  # type: ignore[arg-type]
        assert isinstance(outcome, Passed), outcome
        return outcome.timing

    def _read(self, program: CorpusProgram) -> KernelProgram:
        return unchecked_program(program.text, program.operation, program.element_type)


@pytest.fixture(scope="module")
def unchecked() -> Iterator[Unchecked]:
    process = DeviceProcess(InterpreterFactory("sm_90"), StageLimits())
    with Compiler(1, timeout_s=COMPILE_LIMIT_S) as compiler:
        yield Unchecked(process, compiler)
    process.close()


@pytest.mark.parametrize("program", REFUSED_BY_TEXT, ids=lambda program: program.name)
def test_a_program_that_no_text_check_stops_is_stopped_beneath_or_harmless(
    program: CorpusProgram, unchecked: Unchecked
) -> None:
    kind = (program.operation, program.element_type)
    before = unchecked.timing_before(*kind)
    outcome = unchecked.outcome(program)
    assert isinstance(outcome, Passed) is (program.path.stem in HARMLESS), outcome
    assert unchecked.timing(*kind) == before


def test_no_service_reads_programs_unchecked() -> None:
    sources = [*(ROOT / "services").rglob("*.py"), *(ROOT / "sparsesmith").rglob("*.py")]
    naming = [path.name for path in sources if "unchecked_program" in path.read_text(encoding="utf-8")]
    assert naming == ["program.py"]
