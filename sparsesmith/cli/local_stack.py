"""`sparsesmith up` and `sparsesmith demo`: the stack on this machine."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from sparsesmith.cli.files import matrix_file
from sparsesmith.cli.progress import Progress
from sparsesmith.cli.rendering import show_policy, show_report
from sparsesmith.client import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port, is_free
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import Budget, KernelReport, TuningOptions

READY_TIMEOUT_S = 300.0
DEMO_BUDGET = Budget(candidates=24, seconds=60)


def keep_up(console: Console, *, evaluators: int, port: int, state: Path) -> None:
    """Start the stack and keep it until SIGINT or SIGTERM."""
    if not is_free(port):
        raise Unavailable(f"port {port} is taken: choose another with --port", field="port", value=port)
    signal.signal(signal.SIGTERM, _interrupt)
    options = StackOptions(state, port=port, num_evaluators=evaluators, redis_url=os.environ.get("REDIS_URL"))
    with Stack(options, on_event=_printer(console)) as stack, Client(stack.url) as client:
        wait_until_ready(client, stack)
        console.print(f"[bold]ready[/] at {stack.url} (try: sparsesmith tune examples/bcsstk13.mtx)")
        console.print(f"HTTP interface: {stack.url}/docs; logs: {escape(str(state / 'logs'))}; stop with Ctrl-C")
        try:
            signal.pause()
        except KeyboardInterrupt:
            console.print("stopping")


def run_demo(console: Console, *, matrix: Path, state: Path) -> KernelReport:
    """Start the stack, tune for the matrix, show the answer and the policy, stop."""
    name, data = matrix_file(matrix)
    signal.signal(signal.SIGTERM, _interrupt)
    began = time.monotonic()
    options = StackOptions(state, port=free_port(), redis_url=os.environ.get("REDIS_URL"))
    with Stack(options, on_event=_printer(console)) as stack, Client(stack.url) as client:
        with console.status("waiting for the stack"):
            wait_until_ready(client, stack)
        console.print(f"the stack is ready after {time.monotonic() - began:.0f} s; posting {escape(str(matrix))}")
        with Progress(console, quiet=False) as progress:
            job = client.submit(name, data, TuningOptions(budget=DEMO_BUDGET))
            report = client.wait(job.job_id, progress.update)
        show_report(console, report)
        show_policy(console, client.policy())
    console.print(f"stopped; {time.monotonic() - began:.0f} s in all")
    return report


def wait_until_ready(client: Client, stack: Stack) -> None:
    """Until the generator's engine serves and Redis answers. Raises Unavailable after a while."""
    end = time.monotonic() + READY_TIMEOUT_S
    while not client.is_ready():
        if time.monotonic() > end:
            raise Unavailable(
                f"the stack is not ready after {READY_TIMEOUT_S:.0f} s; see {stack.log_file('generator')}"
            )
        time.sleep(0.5)


def _printer(console: Console) -> Callable[[str], None]:
    return lambda event: console.print(escape(event), soft_wrap=True)


def _interrupt(signal_number: int, frame: object) -> None:
    raise KeyboardInterrupt
