"""What a program that passed did, beside its honest twin: on the interpreter, whatever device it passed on."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from benchmarks.judging.hostile.leftovers import leftovers
from services.evaluator.candidates import parse_text
from services.evaluator.checking.correctness import Correct, check
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.device import BuiltMatrix, Draw
from services.evaluator.interpreter.device import InterpretedKernel, InterpreterDevice, InterpreterWorkload
from services.evaluator.interpreter.machine.report import Counts
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import Rejected, Workload

Work = Literal["undefined", "less", "whole"]
"""`undefined`: the interpreter stops it or its result is wrong there. `less`: right, with less than its twin's work."""

FEWER_SECTORS = 0.97
"""A share of the different sectors that the twin reads: what it must read, it reads however it is compiled."""
FEWER_INSTRUCTIONS = 0.6
"""A share of the twin's instructions that no compiler saves by unrolling a loop otherwise."""
_PRODUCT = re.compile(r"\*.*x\[|x\[.*\*|fma|FMA")


@dataclass(frozen=True)
class Comparison:
    """Of a program with its twin. Shares are of the twin's: instructions of threads, different sectors that are read."""

    work: Work
    reason: str = ""
    instructions: float = 1.0
    sectors: float = 1.0
    products: float = 1.0
    """Instructions of threads in the lines that multiply, where both programs have such lines."""
    leftovers: str = ""
    """Where a launch could find what one before it left, in words; empty where each does what the first did."""


class Twins:
    """Compares programs on one workload."""

    def __init__(self, workload: Workload, pattern: Pattern, compiler: Compiler) -> None:
        self._workload = workload
        self._device_workload: InterpreterWorkload = InterpreterDevice().open(Problem(workload, pattern))
        self._compiler = compiler
        self._draws: Sequence[Draw] = [self._device_workload.draw(name) for name in ("mixed", "one_hot", "integers")]
        self._of_twin = cache(self._work)

    def compared(self, program: str, twin: str) -> Comparison:
        """A twin that does not pass is an error of ours: AssertionError."""
        done, honest = self._work(program), self._of_twin(twin)
        assert not isinstance(honest, str), honest
        if isinstance(done, str):
            return Comparison("undefined", done)
        instructions, sectors = (_share(done, honest, name) for name in ("lane_instructions", "unique_sectors_read"))
        products = _products(program, done) / max(_products(twin, honest), 1) if _products(program, done) else 1.0
        is_less = sectors < FEWER_SECTORS or min(instructions, products) < FEWER_INSTRUCTIONS
        work: Work = "less" if is_less else "whole"
        return Comparison(work, "", instructions, sectors, products, self._leftovers(program))

    def _leftovers(self, text: str) -> str:
        found = self._compiled(text)
        assert not isinstance(found, str), found
        return leftovers(found[0], found[1].ptx)

    def _compiled(self, text: str) -> tuple[KernelProgram, Compiled] | str:
        program = parse_text(text, self._workload)
        if isinstance(program, Rejected):
            return program.message
        binary = self._compiler.compile(program.source, "sm_90")
        return (program, binary) if isinstance(binary, Compiled) else binary.log

    def _work(self, text: str) -> list[Counts] | str:
        """What a program did in its first run, or why it did not pass."""
        found = self._compiled(text)
        if isinstance(found, str):
            return found
        program, binary = found
        layout = program.format.build(self._device_workload.problem.pattern, program.parameters)
        kernel = self._device_workload.load(program, BuiltMatrix("program", layout, 0, 0), binary)
        if not isinstance(kernel, InterpretedKernel):
            return kernel.message
        verdict = check(kernel, self._draws, len(self._draws))
        return [counts for counts, _ in kernel.work()] if isinstance(verdict, Correct) else verdict.message


def _share(done: Sequence[Counts], honest: Sequence[Counts], name: str) -> float:
    taken, twins = (sum(int(getattr(each, name)) for each in counts) for counts in (done, honest))
    return taken / max(twins, 1)


def _products(text: str, counts: Sequence[Counts]) -> int:
    """Instructions of the lines that multiply by an entry of x."""
    lines = text.split("\n")
    wanted = {number for number, line in enumerate(lines, 1) if _PRODUCT.search(line)}
    return sum(line.lane_instructions for each in counts for line in each.lines if line.line in wanted)
