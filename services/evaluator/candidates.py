"""What a candidate's text says: its program, or why it is none. Read once, before anything else happens to it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.operations import Problem
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import KernelProgram, check_sizes, parse_program
from sparsesmith_proto.kernel import Candidate, Rejected, Workload


@dataclass(frozen=True, eq=False)
class Parsed:
    """A candidate whose text was read."""

    candidate: Candidate
    program: KernelProgram | Rejected


def parse_candidates(candidates: Iterable[Candidate], problem: Problem) -> Iterator[Parsed]:
    """Each as it is asked for. Refused is, too, what requires sizes that this problem has not, as far as they are known
    before anything is built."""
    for candidate in candidates:
        parsed = parse_candidate(candidate, problem.workload)
        yield Parsed(candidate, _misfit(parsed.program, problem) or parsed.program)


def parse_candidate(candidate: Candidate, workload: Workload) -> Parsed:
    return Parsed(candidate, parse_text(candidate.program, workload))


def parse_text(text: str, workload: Workload) -> KernelProgram | Rejected:
    """The program in a text, which may be a model's raw answer."""
    try:
        return parse_program(extract_program(text), workload.operation, workload.element_type)
    except InvalidProgram as error:
        return Rejected(message=error.message)


def _misfit(program: KernelProgram | Rejected, problem: Problem) -> Rejected | None:
    if isinstance(program, Rejected) or not program.requirements:
        return None
    of_format = {} if problem.matrix is None else known_sizes(program.format, problem.matrix)
    try:
        check_sizes(program, {**problem.sizes, **of_format})
    except InvalidProgram as error:
        return Rejected(message=error.message)
    return None
