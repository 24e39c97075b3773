"""What a candidate's text says: its program, or why it is none."""

from functools import lru_cache

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import Rejected, Workload


@lru_cache(maxsize=1024)
def parse_candidate(text: str, workload: Workload) -> KernelProgram | Rejected:
    """The program in a candidate's text, which may be a model's raw answer."""
    try:
        return parse_program(extract_program(text), workload.operation, workload.element_type)
    except InvalidProgram as error:
        return Rejected(message=error.message)
