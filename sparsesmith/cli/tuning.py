"""`sparsesmith tune` and `grade`: a matrix or a task goes in, the answer comes out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.markup import escape

from sparsesmith.artifacts import ArtifactKind, artifact_name
from sparsesmith.cli.answers import print_report, save_answer
from sparsesmith.cli.files import matrix_file, program_file
from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import show_evaluation, show_instant
from sparsesmith.cli.terminal import console, errors
from sparsesmith.client import Client
from sparsesmith.errors import InvalidOption
from sparsesmith_proto.api import InstantKernel, Running, TuningOptions
from sparsesmith_proto.kernel import Passed

_DEFAULT_OPERATION = TuningOptions.model_fields["operation"].default

PASSED = 0
NOT_PASSED = 3


def asked_operation(matrix: Path | None, task: str | None, operation: str) -> str:
    """Of a matrix, or the task. Raises InvalidOption unless just one of the two is named."""
    if (matrix is None) == (task is None):
        given = "neither is" if task is None else "both are"
        raise InvalidOption(f"a matrix or --task: {given} given, one is needed", field="task", value=task)
    if task is not None and operation not in (_DEFAULT_OPERATION, task):
        raise InvalidOption("--operation and --task: both are given, one is needed", field="task", value=task)
    return operation if task is None else task


def parsed_axes(text: str) -> dict[str, int]:
    """`rows=64,cols=128`. Raises InvalidOption for what is no such list."""
    axes: dict[str, int] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, size = part.partition("=")
        if not equals or not size.strip().isdecimal() or name.strip() in axes:
            raise InvalidOption(
                f"axes: {part!r} is not NAME=SIZE, each name once", field="axes", value=part, limit="NAME=SIZE,..."
            )
        axes[name.strip()] = int(size)
    return axes


def tune_and_show(
    client: Client, matrix: Path | None, options: TuningOptions, *, out: Path | None, as_json: bool, first: bool = False
) -> None:
    """Tune, show the answer, save its files. Ctrl-C cancels the job. `first`: a kernel that is there before the search
    will do, which then goes on without anybody who waits."""
    sent = None if matrix is None else matrix_file(matrix)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)  # Before the search, whose answer should not be lost to a wrong folder.
    with Progress(errors, quiet=as_json) as progress:
        progress.tell("sending the task" if sent is None else "sending the matrix")
        job = client.submit_task(options) if sent is None else client.submit(*sent, options)
        with _cancelled_by_interrupt(client, job.job_id):
            state = client.answered(job.job_id, progress.update).status if first else None
            handed = state.instant if isinstance(state, Running) else None
            report = None if handed is not None else client.wait(job.job_id, progress.update)
    if handed is not None:
        _show_first(client, job.job_id, handed, out=out, as_json=as_json)
        return
    assert report is not None
    print_report(report, as_json=as_json)
    if out is not None:
        save_answer(client, job.job_id, report, out, quiet=as_json)


def _show_first(client: Client, job_id: str, kernel: InstantKernel, *, out: Path | None, as_json: bool) -> None:
    if as_json:
        print(client.status(job_id).model_dump_json(indent=2))
    else:
        show_instant(console, job_id, kernel)
    if out is None:
        return
    kinds: tuple[ArtifactKind, ...] = ("cu", "json")
    for kind in kinds:
        path = out / artifact_name(kernel.workload, kind)
        path.write_bytes(client.artifact(job_id, kind))
        if not as_json:
            console.print(f"wrote      {escape(str(path))}", soft_wrap=True)


def submit(client: Client, matrix: Path | None, options: TuningOptions, *, as_json: bool) -> None:
    """Hand the matrix or the task in and print the id of its job."""
    job = client.submit_task(options) if matrix is None else client.submit(*matrix_file(matrix), options)
    print(job.model_dump_json(indent=2) if as_json else job.job_id)


def grade_program(client: Client, program: Path, matrix: Path | None, options: TuningOptions, *, as_json: bool) -> int:
    """Grade, show the outcome; the exit code."""
    text = program_file(program)
    sent = None if matrix is None else matrix_file(matrix)
    with Progress(errors, quiet=as_json) as progress:
        progress.tell("sending the program" if sent is None else "sending the matrix")
        if sent is None:
            answer = client.grade_task(text, options, progress.update)
        else:
            answer = client.grade_file(text, *sent, options, progress.update)
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
