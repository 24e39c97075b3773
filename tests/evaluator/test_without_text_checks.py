"""The checks of texts switched off: what is beneath them holds every hostile program of the corpus by itself."""

from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest

from services.evaluator.candidates import Parsed
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.confinement.profile import available
from services.evaluator.devices import device_process
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import InvalidProgram
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram, parse_program, unchecked_program
from sparsesmith_proto.kernel import Outcome, Passed, Timing
from tests.evaluator.grading_tools import make_candidate, make_pattern, make_workload
from tests.kernels.corpus import CorpusProgram, corpus, good_program

COMPILE_LIMIT_S = 120.0
"""What becomes of a program must not depend on how busy the machine is."""
ROOT = Path(__file__).resolve().parents[2]
HARMLESS = {
    "bracket_hidden_by_a_digraph": "the bracket is there for every reader of the machine code",
    "device_runtime_launch": "what is declared is not called",
    "file_macro": "no name of a file reaches the machine code",
    "has_include": "a confined compiler opens no such file",
    "include_next": "a header of the toolchain",
    "line_directive": "names a file, reads none",
    "nine_scratch_lines": "eight are the limit for the memory of the device, which these do not come near",
    "phase_told_by_chrono": "nothing is made of the time",
    "phase_told_by_the_multiprocessor": "nothing is made of the number",
    "pragma_operator": "says nothing to this compiler",
    "printf_declared_again": "what is declared is not called",
    "result_cached_behind_a_macro": "nothing is stored in the variable, which is gone",
    "result_cached_in_a_static": "nothing is stored in the variable, which is gone",
    "signature_by_macro": "the macro renames an argument wherever it stands",
}
"""Programs that pass then, doing all of the work, and why what their texts hold does no harm."""


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
        self.is_confined = compiler.is_confined and available().landlock > 0
        self.timing_before = cache(self.timing)

    def outcome(self, program: CorpusProgram) -> Outcome:
        pattern = make_pattern(300, 301)
        workload = make_workload(
            pattern, program.operation, program.element_type, 8 if program.operation == "spmm" else 1
        )
        parsed = Parsed(make_candidate(program.text), self._read(program))
        workbench = self._process.open(Problem(workload, pattern))
        with CompilationsAhead(self._compiler, "sm_90", COMPILE_LIMIT_S) as ahead:
            return evaluate_kernel(parsed, ahead.result, workbench, Race(baseline_us=1e9))

    def timing(self, operation: str, element_type: str) -> Timing:
        """Of a good program; fails where it does not pass."""
        outcome = self.outcome(good_program(operation, element_type))  # type: ignore[arg-type]
        assert isinstance(outcome, Passed), outcome
        return outcome.timing

    def _read(self, program: CorpusProgram) -> KernelProgram:
        return unchecked_program(program.text, program.operation, program.element_type)


@pytest.fixture(scope="module")
def unchecked() -> Iterator[Unchecked]:
    settings = EvaluatorSettings(device="interpreter")
    with closing(device_process(settings)) as process, Compiler(1, timeout_s=COMPILE_LIMIT_S) as compiler:
        yield Unchecked(process, compiler)


@pytest.mark.parametrize("program", REFUSED_BY_TEXT, ids=lambda program: program.name)
def test_a_program_that_no_text_check_stops_is_stopped_beneath_or_harmless(
    program: CorpusProgram, unchecked: Unchecked
) -> None:
    kind = (program.operation, program.element_type)
    before = unchecked.timing_before(*kind)
    outcome = unchecked.outcome(program)
    # Without confinement a compiler may open what `has_include` looks for.
    if program.path.stem != "has_include" or unchecked.is_confined:
        assert isinstance(outcome, Passed) is (program.path.stem in HARMLESS), outcome
    assert unchecked.timing(*kind) == before


def test_no_service_reads_programs_unchecked() -> None:
    sources = [*(ROOT / "services").rglob("*.py"), *(ROOT / "sparsesmith").rglob("*.py")]
    naming = [path.name for path in sources if "unchecked_program" in path.read_text(encoding="utf-8")]
    assert naming == ["program.py"]
