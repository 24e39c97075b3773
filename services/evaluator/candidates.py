"""What a candidate's text says: its program, or why it is none. Read once, before anything else happens to it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import KernelProgram, check_sizes, parse_program
from sparsesmith_proto.kernel import Candidate, Rejected, Workload


@dataclass(frozen=True, eq=False)
class Parsed:
    """A candidate whose text was read."""

    candidate: Candidate
    program: KernelProgram | Rejected


def parse_candidates(candidates: Iterable[Candidate], workload: Workload, pattern: Pattern) -> Iterator[Parsed]:
    """Each as it is asked for. Refused is, too, what requires sizes that this matrix has not, as far as they are known
    before anything is built."""
    for candidate in candidates:
        parsed = parse_candidate(candidate, workload)
        yield Parsed(candidate, _misfit(parsed.program, pattern) or parsed.program)


def parse_candidate(candidate: Candidate, workload: Workload) -> Parsed:
    return Parsed(candidate, parse_text(candidate.program, workload))


def parse_text(text: str, workload: Workload) -> KernelProgram | Rejected:
    """The program in a text, which may be a model's raw answer."""
    try:
        return parse_program(extract_program(text), workload.operation, workload.element_type)
    except InvalidProgram as error:
        return Rejected(message=error.message)


def _misfit(program: KernelProgram | Rejected, pattern: Pattern) -> Rejected | None:
    if isinstance(program, Rejected) or not program.requirements:
        return None
    try:
        check_sizes(program, known_sizes(program.format, pattern))
    except InvalidProgram as error:
        return Rejected(message=error.message)
    return None
