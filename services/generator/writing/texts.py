"""The program in a candidate, as those who change it are shown it."""

from sparsesmith.errors import InvalidProgram
from sparsesmith.families.naming import named_program
from sparsesmith.operations import Problem
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import set_knobs
from sparsesmith_proto.kernel import Candidate, CompileFailed, FromFamily, Outcome, Rejected
from sparsesmith_proto.message import MAX_PROGRAM_CHARACTERS

MAX_QUOTED_CHARACTERS = 4096
"""Of an answer that holds no program: enough to see what it is."""


def program_of(candidate: Candidate) -> str:
    """As it was written: numbers that it leaves open are open."""
    return program_in(candidate.written or candidate.program)


def program_told_of(candidate: Candidate, outcome: Outcome) -> str:
    """What its outcome speaks of: refusals count the lines of the text as it was written, compilers those of what they
    were given."""
    return program_of(candidate) if isinstance(outcome, Rejected) else program_in(candidate.program)


def program_shown_of(candidate: Candidate, outcome: Outcome, problem: Problem, num_sms: int) -> str:
    """As the policy is shown it, which writes names itself: what follows from the matrix by name, wherever that text is
    known to come to what was graded. Refusals and compilers count lines: what they count those of."""
    if isinstance(outcome, Rejected | CompileFailed):
        return program_told_of(candidate, outcome)
    if candidate.written is not None:
        return set_knobs(program_of(candidate), candidate.settings) if candidate.settings else program_of(candidate)
    plain, origin = program_in(candidate.program), candidate.origin
    if not isinstance(origin, FromFamily):
        return plain
    workload = problem.workload
    circumstances = Circumstances(problem.matrix, workload.num_dense_cols, num_sms, workload.axes)
    return named_program(origin.family, origin.parameters, plain, circumstances, workload.element_type) or plain


def program_in(text: str) -> str:
    """The text's beginning where it holds no program: evaluators refuse it by name."""
    try:
        program = extract_program(text)
    except InvalidProgram:
        return text[:MAX_QUOTED_CHARACTERS]
    return program[:MAX_PROGRAM_CHARACTERS]
