"""What compiled kernels write to: A, its indices, the dense operand and constants are for reading only.

Checked before the kernel runs, because a write that is undone before the kernel ends leaves no trace that a checksum
could show, and a constant that was written to would be there in the next run.

What this does not protect against: an address that went through memory, or was computed from another buffer's or from
numbers. The interpreter's memory checker finds such a write; on a GPU guards and checksums show what it leaves behind.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.evaluator.compiling.contract.pointer_flow import read_module, stored_origins


@dataclass(frozen=True)
class Written:
    """What a program's kernels may write to, as far as an address has one plain origin."""

    parameters: Mapping[str, list[int]]
    """Positions of the parameters that each kernel writes through, ascending."""
    constants: list[str]
    """Names of variables in constant memory."""


def written_by(ptx: str) -> Written:
    module = read_module(ptx)
    parameters: dict[str, list[int]] = {}
    constants: set[str] = set()
    for name, function in module.functions.items():
        if not function.is_entry:
            continue
        plain = {next(iter(origin)) for origin in stored_origins(module, name) if len(origin) == 1}
        own = [f"{name}/{parameter}" for parameter in function.parameters]
        parameters[name] = [position for position, parameter in enumerate(own) if parameter in plain]
        constants |= {variable for variable in plain if module.variables.get(variable) == "const"}
    return Written(parameters, sorted(constants))
