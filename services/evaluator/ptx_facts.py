"""What the contract asks of compiled PTX, found where it was compiled: reading the text takes milliseconds of a
core, and a compiler's process has a time limit and may be lost."""

from collections.abc import Mapping
from dataclasses import dataclass

from services.evaluator.call_graph import has_unbounded_stack
from services.evaluator.stored_arguments import written_parameters
from sparsesmith.domain.persistent_state import persistent_variables


@dataclass(frozen=True)
class PtxFacts:
    """Of all kernels of a program."""

    persistent_variables: list[str]
    """Names of variables that outlive a launch."""
    has_unbounded_stack: bool
    """A function may call itself, or calls through a pointer."""
    written_parameters: Mapping[str, list[int]]
    """Positions of the parameters that each kernel writes through."""


def facts_of(ptx: str) -> PtxFacts:
    return PtxFacts(
        persistent_variables=persistent_variables(ptx),
        has_unbounded_stack=has_unbounded_stack(ptx),
        written_parameters={kernel: sorted(written) for kernel, written in written_parameters(ptx).items()},
    )
