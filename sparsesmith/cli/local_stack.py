"""`sparsesmith up` and `sparsesmith demo`: the stack on this machine."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from sparsesmith.cli.answers import show_answer
from sparsesmith.cli.files import matrix_file
from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import describe_samples, show_line, show_policy
from sparsesmith.client import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port, is_free
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, TuningOptions

READY_TIMEOUT_S = 300.0
SEARCH_ANEW = {"Cache-Control": "no-cache"}
"""A demo shows a search, not what an earlier one found."""

DEMO = TuningOptions(search="families", budget=Budget(candidates=24, seconds=3600))
"""Ended by its candidates, however busy the machine: with a limit in seconds two runs gave two answers. The families
alone, for what a policy samples differs from run to run."""

DEMO_OF_THE_POLICY = TuningOptions(search="sample", budget=Budget(candidates=8, seconds=600))


def keep_up(console: Console, *, evaluators: int, port: int, state: Path) -> None:
    """Start the stack and keep it until SIGINT or SIGTERM."""
    if not is_free(port):
        raise Unavailable(f"port {port} is taken: choose another with --port", field="port", value=port)
    signal.signal(signal.SIGTERM, _interrupt)
    options = StackOptions(state, port=port, num_evaluators=evaluators, redis_url=os.environ.get("REDIS_URL"))
    with Stack(options, on_event=_printer(console)) as stack, Client(stack.url) as client:
        with Progress(console, quiet=False) as progress:
            wait_until_ready(client, stack, progress.tell)
        console.print(f"[bold]ready[/]: open {stack.url} (or: sparsesmith tune examples/bcsstk13.mtx)")
        console.print(f"HTTP interface: {stack.url}/docs; logs: {escape(str(state / 'logs'))}; stop with Ctrl-C")
        try:
            signal.pause()
        except KeyboardInterrupt:
            console.print("stopping")


def run_demo(console: Console, *, matrix: Path, state: Path) -> None:
    """Start the stack, demonstrate it on the matrix, stop."""
    matrix_file(matrix)  # Before anything is started for one that cannot be read.
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    options = StackOptions(state, port=free_port(), redis_url=os.environ.get("REDIS_URL"))
    with Stack(options, on_event=_printer(console)) as stack, Client(stack.url, SEARCH_ANEW) as client:
        with Progress(console, quiet=False) as progress:
            wait_until_ready(client, stack, progress.tell)
        console.print(f"the stack is ready after {time.monotonic() - began:.0f} s; posting {escape(str(matrix))}")
        demonstrate(console, client, matrix)
        console.print("stopping")
    console.print(f"stopped; {time.monotonic() - began:.0f} s in all")


def demonstrate(console: Console, client: Client, matrix: Path) -> None:
    """Tune by the kernel families, show the answer; then what the policy writes for the same matrix."""
    name, data = matrix_file(matrix)
    with Progress(console, quiet=False) as progress:
        report = client.wait(client.submit(name, data, DEMO).job_id, progress.update)
    show_answer(console, report)
    console.print()
    with Progress(console, quiet=False) as progress:
        progress.tell("now the language model writes kernels for the same matrix")
        try:
            sampled = client.wait(client.submit(name, data, DEMO_OF_THE_POLICY).job_id, progress.update)
        except Unavailable as error:
            show_line(console, "policy", f"wrote nothing: {error.message}")
            return
    show_line(console, "policy", describe_samples(sampled))
    show_policy(console, client.policy())


def wait_until_ready(
    client: Client,
    stack: Stack,
    tell: Callable[[str], None] = lambda news: None,
    *,
    is_whole: bool = False,
    timeout_s: float = READY_TIMEOUT_S,
) -> None:
    """Until the generator takes requests, and (`is_whole`) everything works, the engine too; `tell` gets what is
    missing, often. Raises Unavailable after a while."""
    end = time.monotonic() + timeout_s
    while not (health := client.health()).is_ready or (is_whole and health.problem is not None):
        if time.monotonic() > end:
            raise Unavailable(
                f"the stack is not ready after {timeout_s:.0f} s ({health.describe()}); see "
                f"{stack.log_file('generator')}"
            )
        tell(f"waiting for the stack: {health.problem}" if health.is_alive else "waiting for the stack to start")
        time.sleep(0.5)


def _printer(console: Console) -> Callable[[str], None]:
    return lambda event: console.print(escape(event), soft_wrap=True)


def _interrupt(signal_number: int, frame: object) -> None:
    raise KeyboardInterrupt
