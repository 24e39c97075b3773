"""What the assembler's log says: messages, and the resources of each kernel."""

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class KernelResources:
    """What the assembler says about a kernel: registers of a thread, the rest in bytes."""

    registers: int
    spill_bytes: int
    """Bytes stored because the registers did not suffice."""
    local_bytes: int
    """Stack frame of a thread, spilled values included."""
    shared_bytes: int
    """Static shared memory of a block."""
    constant_bytes: int
    barriers: int


_FUNCTION_LINE = re.compile(r"ptxas info\s+: Function properties for (\S+)")
_STACK_LINE = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores")
_USAGE_LINE = re.compile(r"ptxas info\s+: Used (\d+) registers(.*)")
_NO_RESOURCES = KernelResources(0, 0, 0, 0, 0, 0)


def split_log(log: str) -> tuple[str, dict[str, KernelResources]]:
    """Separate the assembler's messages from its resource lines (`--verbose`)."""
    resources: dict[str, KernelResources] = {}
    messages: list[str] = []
    current = ""
    for line in log.splitlines():
        if (function := _FUNCTION_LINE.match(line)) is not None:
            current = function.group(1)
            resources.setdefault(current, _NO_RESOURCES)
        elif current and (stack := _STACK_LINE.search(line)) is not None:
            local, spill = int(stack.group(1)), int(stack.group(2))
            resources[current] = replace(resources[current], local_bytes=local, spill_bytes=spill)
        elif current and (usage := _USAGE_LINE.match(line)) is not None:
            resources[current] = _with_usage(resources[current], int(usage.group(1)), usage.group(2))
        elif not line.startswith("ptxas info") and (line.strip() or messages):
            messages.append(line)
    return "\n".join(messages).strip(), {name: used for name, used in resources.items() if used.registers}


def _with_usage(resources: KernelResources, registers: int, rest: str) -> KernelResources:
    def total(pattern: str) -> int:
        return sum(int(number) for number in re.findall(pattern, rest))

    return replace(
        resources,
        registers=registers,
        shared_bytes=total(r"(\d+) bytes smem"),
        constant_bytes=total(r"(\d+) bytes cmem"),
        barriers=total(r"used (\d+) barriers"),
    )
