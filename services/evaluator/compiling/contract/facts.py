"""What the contract asks of compiled PTX, found where it was compiled: reading the text takes milliseconds of a
core, and a compiler's process has a time limit and may be lost."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.evaluator.compiling.contract.call_graph import has_unbounded_stack
from services.evaluator.compiling.contract.written import written_by
from sparsesmith.program.restrictions.assembly import forbidden_instruction
from sparsesmith.program.restrictions.state import persistent_variables


@dataclass(frozen=True)
class PtxFacts:
    """Of all kernels of a program."""

    persistent_variables: list[str]
    """Names of variables that outlive a launch."""
    forbidden_instruction: str
    """A clock, a signal, ... and why it may not be; empty where there is none."""
    has_unbounded_stack: bool
    """A function may call itself, or calls through a pointer."""
    written_parameters: Mapping[str, list[int]]
    """Positions of the parameters that each kernel writes through."""
    written_constants: list[str]
    """Names of variables in constant memory that are written to."""


def facts_of(ptx: str) -> PtxFacts:
    written = written_by(ptx)
    return PtxFacts(
        persistent_variables=persistent_variables(ptx),
        forbidden_instruction=forbidden_instruction(ptx),
        has_unbounded_stack=has_unbounded_stack(ptx),
        written_parameters=written.parameters,
        written_constants=written.constants,
    )
