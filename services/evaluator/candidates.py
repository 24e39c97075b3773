"""What a candidate's text says: its numbers filled in, its program, or why it is none."""

from collections.abc import Iterable
from functools import lru_cache

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers, is_open, set_knobs
from sparsesmith.program.program import KernelProgram, check_sizes, parse_program
from sparsesmith_proto.kernel import Candidate, Rejected, Workload


@lru_cache(maxsize=1024)
def parse_candidate(text: str, workload: Workload) -> KernelProgram | Rejected:
    """The program in a candidate's text, which may be a model's raw answer."""
    try:
        return parse_program(extract_program(text), workload.operation, workload.element_type)
    except InvalidProgram as error:
        return Rejected(message=error.message)


def bound(
    candidates: Iterable[Candidate], workload: Workload, pattern: Pattern, num_sms: int
) -> tuple[tuple[Candidate, ...], dict[str, Rejected]]:
    """Candidates with their numbers filled in, in order; and texts among these that are refused for what they leave
    open.

    Lines in a message count as in the text as it was written.
    """
    circumstances = Circumstances(pattern, workload.num_dense_cols, num_sms)
    filled, refused = [], {}
    for candidate in candidates:
        if not is_open(candidate.program) and not candidate.settings:
            filled.append(candidate)
            continue
        program, rejected = _bound(candidate, workload, circumstances)
        filled.append(candidate.model_copy(update={"program": program, "written": candidate.program}))
        if rejected is not None:
            refused[program] = rejected
    return tuple(filled), refused


def _bound(candidate: Candidate, workload: Workload, circumstances: Circumstances) -> tuple[str, Rejected | None]:
    """The program, as far as its numbers could be filled in."""
    text = candidate.program
    try:
        text = extract_program(text)
        program = bind_numbers(text, candidate.settings, circumstances, workload.operation, workload.element_type)
        text = program.text
        if isinstance(parse_candidate(text, workload), Rejected):
            parse_program(program.in_place, workload.operation, workload.element_type)
    except InvalidProgram as error:
        return _told_apart(text, candidate), Rejected(message=error.message)
    return text, None


def _told_apart(text: str, candidate: Candidate) -> str:
    """With its knobs set, where they can be: a text may be refused at one setting and not at another."""
    try:
        return set_knobs(text, candidate.settings)
    except InvalidProgram:
        return text


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
