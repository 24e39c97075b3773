"""What a candidate's text says: its numbers filled in, its program, or why it is none. Read once, before all else."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.scaled import ALPHA, BETA, scaled
from sparsesmith.operations.task import baseline_of
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.epilogue import scaled_source
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers, is_open, set_knobs
from sparsesmith.program.program import KernelProgram, check_sizes, parse_program
from sparsesmith_proto.kernel import Candidate, Rejected, Workload


@dataclass(frozen=True, eq=False)
class Filled:
    """A candidate without open numbers."""

    candidate: Candidate
    in_place: str = ""
    """Its text with every line where it was written; empty where nothing was open."""
    refused: Rejected | None = None
    """Why its numbers cannot be filled in."""


@dataclass(frozen=True, eq=False)
class Parsed:
    """A candidate whose text was read."""

    candidate: Candidate
    program: KernelProgram | Rejected


def fill_numbers(candidates: Iterable[Candidate], problem: Problem, num_sms: int) -> tuple[Filled, ...]:
    """In order. Lines in a message count as in the text as it was written."""
    workload = problem.workload
    sizes = workload.axes if problem.matrix is not None else problem.sizes
    circumstances = Circumstances(problem.matrix, workload.num_dense_cols, num_sms, sizes)
    return tuple(
        _filled(each, workload, circumstances) if is_open(each.program) or each.settings else Filled(each)
        for each in candidates
    )


def parse_candidates(candidates: Iterable[Filled], problem: Problem) -> Iterator[Parsed]:
    """Each as it is asked for. Refused is, too, what requires sizes that this problem has not, as far as they are known
    before anything is built."""
    for each in candidates:
        program = each.refused or parse_text(each.candidate.program, problem.workload)
        if isinstance(program, Rejected):
            yield Parsed(each.candidate, _as_written(each, problem.workload) or program)
        else:
            yield Parsed(each.candidate, _misfit(program, problem) or program)


def parse_candidate(candidate: Candidate, workload: Workload) -> Parsed:
    """Of one that leaves nothing open."""
    return Parsed(candidate, parse_text(candidate.program, workload))


def parse_text(text: str, workload: Workload) -> KernelProgram | Rejected:
    """The program in a text, which may be a model's raw answer."""
    try:
        return program_of(extract_program(text), workload)
    except InvalidProgram as error:
        return Rejected(message=error.message)


def program_of(text: str, workload: Workload) -> KernelProgram:
    """The program as it is graded: where the workload is scaled, so is what it stores. Raises InvalidProgram."""
    program = parse_program(text, workload.operation, workload.element_type)
    if not workload.alpha_beta:
        return program
    operation = scaled(operation_named(workload.operation))
    source = scaled_source(program, operation.output, workload.element_type, (ALPHA, BETA))
    changed = (replace(each, role="inout") if each.name == operation.output else each for each in program.signature)
    return replace(program, source=source, signature=tuple(changed))


def baseline_text(workload: Workload, num_sms: int) -> tuple[str, str]:
    """Name and text of the program that candidates are compared with where no library is, its numbers filled in: it may
    name sizes of the workload, but no fact of a matrix."""
    operation = operation_named(workload.operation)
    name = baseline_of(operation, deterministic=workload.deterministic)
    text = with_element_type(operation.programs[name], workload.element_type)
    circumstances = Circumstances(None, workload.num_dense_cols, num_sms, workload.axes)
    return name, bind_numbers(text, {}, circumstances, workload.operation, workload.element_type).text


def _filled(candidate: Candidate, workload: Workload, circumstances: Circumstances) -> Filled:
    text = candidate.program
    try:
        text = extract_program(text)
        program = bind_numbers(text, candidate.settings, circumstances, workload.operation, workload.element_type)
    except InvalidProgram as error:
        known = candidate.model_copy(update={"program": _told_apart(text, candidate), "written": candidate.program})
        return Filled(known, refused=Rejected(message=error.message))
    known = candidate.model_copy(update={"program": program.text, "written": candidate.program})
    return Filled(known, in_place=program.in_place)


def _told_apart(text: str, candidate: Candidate) -> str:
    """With its knobs set, where they can be: a text may be refused at one setting and not at another."""
    try:
        return set_knobs(text, candidate.settings)
    except InvalidProgram:
        return text


def _as_written(filled: Filled, workload: Workload) -> Rejected | None:
    """Why a filled-in text is no program, by the lines as they were written; None where nothing was open."""
    if filled.in_place:
        try:
            parse_program(filled.in_place, workload.operation, workload.element_type)
        except InvalidProgram as error:
            return Rejected(message=error.message)
    return None


def _misfit(program: KernelProgram, problem: Problem) -> Rejected | None:
    if not program.requirements:
        return None
    of_format = {} if problem.matrix is None else known_sizes(program.format, problem.matrix)
    try:
        check_sizes(program, {**problem.sizes, **of_format})
    except InvalidProgram as error:
        return Rejected(message=error.message)
    return None
