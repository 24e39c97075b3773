"""The story of a kernel that is wanted at once: format, compilation and first input side by side, one check, no timing.

What it does not protect against: all that a single run on a single input does not show (races, what outputs held
before, work that is skipped when repeated, products that are only nearly right). The full protocol follows
(`evaluation`), and the generator withdraws what fails it.
"""

from services.evaluator.candidates import Parsed
from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.evaluation import heaviest_kernel
from services.evaluator.isolation.workbench import Built, Workbench
from services.evaluator.stages import Stages
from sparsesmith.formats.values.compressed import storage_name
from sparsesmith_proto.evaluation import FirstOutcome
from sparsesmith_proto.kernel import Checked, Rejected


def hand_out(parsed: Parsed, ahead: CompilationsAhead, workbench: Workbench, stages: Stages) -> FirstOutcome:
    """What becomes of a program whose compilation has begun. Raises Unavailable where there is no device."""
    program = parsed.program
    if isinstance(program, Rejected):
        return program
    with stages.of("format"):
        built = workbench.build_first(program)
    if not isinstance(built, Built):
        return built
    with stages.of("input"):
        workbench.draw_first()
    with stages.of("compile_wait"):
        binary = ahead.result(program)
    if not isinstance(binary, Compiled):
        return binary
    with stages.of("check"):
        verdict = workbench.check_first(program, binary)
    if not isinstance(verdict, Correct):
        return verdict
    return Checked(
        resources=heaviest_kernel(binary),
        storage_format=storage_name(program.format),
        format_bytes=built.format_bytes,
        conversion_ms=built.conversion_ms,
        built_on=built.built_on,
        worst_error=verdict.worst_error,
    )
