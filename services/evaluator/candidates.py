"""What a candidate's text says: its program, or why it is none."""

from collections.abc import Iterable
from functools import lru_cache

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import KernelProgram, check_sizes, parse_program
from sparsesmith_proto.kernel import Candidate, Rejected, Workload


@lru_cache(maxsize=1024)
def parse_candidate(text: str, workload: Workload) -> KernelProgram | Rejected:
    """The program in a candidate's text, which may be a model's raw answer."""
    try:
        return parse_program(extract_program(text), workload.operation, workload.element_type)
    except InvalidProgram as error:
        return Rejected(message=error.message)


def misfits(candidates: Iterable[Candidate], workload: Workload, pattern: Pattern) -> dict[str, Rejected]:
    """Texts that require what this matrix has not, as far as that is known before anything is built or compiled."""
    refused = {}
    for text in {candidate.program for candidate in candidates if "require" in candidate.program}:
        program = parse_candidate(text, workload)
        if isinstance(program, KernelProgram) and program.requirements:
            try:
                check_sizes(program, known_sizes(program.format, pattern))
            except InvalidProgram as error:
                refused[text] = Rejected(message=error.message)
    return refused
