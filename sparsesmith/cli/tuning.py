"""`sparsesmith tune` and `grade`: a file goes in, the answer comes out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparsesmith.cli.answers import print_report, save_answer
from sparsesmith.cli.files import matrix_file, program_file
from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import show_evaluation
from sparsesmith.cli.terminal import console, errors
from sparsesmith.client import Client
from sparsesmith_proto.api import TuningOptions
from sparsesmith_proto.kernel import Passed

PASSED = 0
NOT_PASSED = 3


def tune_matrix(client: Client, matrix: Path, options: TuningOptions, *, out: Path | None, as_json: bool) -> None:
    """Tune, show the answer, save its files. Ctrl-C cancels the job."""
    name, data = matrix_file(matrix)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # Before the search, whose answer should not be lost to a wrong folder.
    with Progress(errors, quiet=as_json) as progress:
        progress.tell("sending the matrix")
        job = client.submit(name, data, options)
        with _cancelled_by_interrupt(client, job.job_id):
            report = client.wait(job.job_id, progress.update)
    print_report(report, as_json=as_json)
    if out is not None:
        save_answer(client, job.job_id, report, out, quiet=as_json)


def submit_matrix(client: Client, matrix: Path, options: TuningOptions, *, as_json: bool) -> None:
    """Hand the matrix in and print the id of its job."""
    job = client.submit(*matrix_file(matrix), options)
    print(job.model_dump_json(indent=2) if as_json else job.job_id)


def grade_program(client: Client, program: Path, matrix: Path, options: TuningOptions, *, as_json: bool) -> int:
    """Grade, show the outcome; the exit code."""
    text = program_file(program)
    name, data = matrix_file(matrix)
    with Progress(errors, quiet=as_json) as progress:
        progress.tell("sending the matrix")
        answer = client.grade_file(text, name, data, options, progress.update)
    if as_json:
        print(answer.model_dump_json(indent=2))
    else:
        show_evaluation(console, answer)
    return PASSED if isinstance(answer.evaluation.outcome, Passed) else NOT_PASSED


@contextmanager
def _cancelled_by_interrupt(client: Client, job_id: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        client.cancel(job_id)
        raise
