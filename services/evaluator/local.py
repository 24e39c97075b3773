"""One program on one matrix, graded here and now by this machine's device: no queue, no server.

python -m services.evaluator.local KERNEL.cu MATRIX [--operation spmv] [--type float32] [--num-dense-cols 1]
    [--values any] [--deterministic] [--alpha-beta]

Prints an EvaluationAnswer as JSON; what is wrong with the question, in one line of standard error, with exit code 2.
"""

import argparse
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from services.evaluator.settings import EvaluatorSettings
from sparsesmith.errors import InvalidOption, NotFound, SparsesmithError
from sparsesmith.matrix.files import read_matrix
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.operations import Problem, check_axes, operation_named
from sparsesmith_proto.api import EvaluationAnswer
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import Candidate, UserWritten, Workload
from sparsesmith_proto.words import ElementType, ValuesOption

if TYPE_CHECKING:
    from services.evaluator.jobs import Grader

BAD_QUESTION = 2


@dataclass(frozen=True)
class HeldMatrix:
    """The one matrix that a grader may ask for."""

    pattern: Pattern
    values: FixedValues | None

    def problem(self, workload: Workload) -> Problem:
        """Raises NotFound."""
        if workload.pattern != self.pattern.digest:
            raise NotFound(f"no pattern {workload.pattern} is here", field="pattern", value=workload.pattern)
        if workload.values is not None and (self.values is None or workload.values != self.values.digest):
            raise NotFound(f"no values {workload.values} are here", field="values", value=workload.values)
        return Problem(workload, self.pattern, None if workload.values is None else self.values)


def main(arguments: list[str] | None = None) -> int:
    options = _parse(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        answer = grade_here(options.program, options.matrix, options)
    except (SparsesmithError, OSError, UnicodeDecodeError) as error:
        print(error, file=sys.stderr)
        return BAD_QUESTION
    print(answer.model_dump_json())
    return 0


def grade_here(program: Path, matrix: Path, options: argparse.Namespace) -> EvaluationAnswer:
    """Raises SparsesmithError for what is no matrix, no workload or beyond the device."""
    held = held_matrix(matrix, options.values, options.type)
    check_axes(operation_named(options.operation), options.num_dense_cols)
    workload = Workload(
        pattern=held.pattern.digest,
        operation=options.operation,
        element_type=options.type,
        num_dense_cols=options.num_dense_cols,
        values=None if held.values is None else held.values.digest,
        deterministic=options.deterministic,
        alpha_beta=options.alpha_beta,
    )
    candidate = Candidate(candidate_id="user", program=program.read_text(encoding="utf-8"), origin=UserWritten())
    return graded(EvaluationJob(job_id="local", workload=workload, candidates=(candidate,)), held)


def held_matrix(path: Path, values: ValuesOption, element_type: ElementType) -> HeldMatrix:
    """Raises InvalidMatrix, LimitExceeded, InvalidOption."""
    pattern, given = read_matrix(path, path.name)
    if values == "any":
        return HeldMatrix(pattern, None)
    if given is None:
        raise InvalidOption(f"values=fixed: {path.name} has no values that are real", field="values", value=values)
    return HeldMatrix(pattern, fixed_values(given, element_type))


@contextmanager
def grader_here(settings: EvaluatorSettings) -> "Iterator[Grader]":
    """Starts the device and a compiler, and ends them."""
    from services.evaluator.compiling.compiler import Compiler
    from services.evaluator.devices import device_process, inspections_beside
    from services.evaluator.jobs import Grader

    with (
        closing(device_process(settings)) as process,
        Compiler(1, timeout_s=settings.compile_limit_s, confinement=settings.confinement) as compiler,
        inspections_beside(settings, process.start(), waits=True) as inspections,
    ):
        yield Grader(process, compiler, inspections=inspections)


def graded(job: EvaluationJob, held: HeldMatrix) -> EvaluationAnswer:
    """By this machine's device, which is started for it."""
    with grader_here(EvaluatorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))) as grader:
        report = grader.grade(job, held)
    return EvaluationAnswer(
        workload=job.workload, evaluation=report.evaluations[0], baselines=report.baselines, device=report.device
    )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m services.evaluator.local", description=__doc__.splitlines()[0])
    parser.add_argument("program", type=Path, help="a kernel program (.cu)")
    parser.add_argument("matrix", type=Path, help=".mtx, .mtx.gz or SciPy .npz")
    parser.add_argument("--operation", default="spmv")
    parser.add_argument("--type", choices=get_args(ElementType), default="float32")
    parser.add_argument("--num-dense-cols", type=int, default=1)
    parser.add_argument("--values", choices=get_args(ValuesOption), default="any")
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--alpha-beta", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
