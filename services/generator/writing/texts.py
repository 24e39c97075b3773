"""The program in a candidate, as those who change it are shown it."""

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.kernel import Candidate, Outcome, Rejected
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


def program_in(text: str) -> str:
    """The text's beginning where it holds no program: evaluators refuse it by name."""
    try:
        program = extract_program(text)
    except InvalidProgram:
        return text[:MAX_QUOTED_CHARACTERS]
    return program[:MAX_PROGRAM_CHARACTERS]
