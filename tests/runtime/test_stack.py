"""The whole stack as processes: it starts, mends itself, is alone on its folder and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from sparsesmith.errors import Conflict
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import MOST_LOG_BYTES, Stack, StackOptions, put_aside
from tests.transport.workers import ROOT, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
    "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
    "SPARSESMITH_EVALUATOR_COMPILE_WORKERS": "1",
    "SPARSESMITH_GENERATOR_POLICY_DIR": "no-policy",
    "SPARSESMITH_TRAINER_POLICY_DIR": "no-policy",
}
NAMES = {"valkey", "generator", "evaluator-0", "trainer"}


def make_options(state: Path, port: int) -> StackOptions:
    return StackOptions(state, port=port, environment=ENVIRONMENT)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(make_options(tmp_path_factory.mktemp("state"), free_port())) as stack:
        wait_until(lambda: is_ready(stack), 120)
        yield stack


def is_ready(stack: Stack) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{stack.url}/readyz").status_code == 200
    return False


def members(sessions: set[int]) -> dict[int, str]:
    """Commands of the processes that live in these sessions."""
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            pid = int(entry.name)
            if os.getsid(pid) in sessions and "\nState:\tZ" not in (entry / "status").read_text():
                found[pid] = (entry / "cmdline").read_text().replace("\0", " ")
    return found


def test_every_service_runs_and_writes_a_log(stack: Stack) -> None:
    assert stack.pids().keys() == NAMES
    assert all(stack.log_file(name).exists() for name in NAMES - {"valkey"})


def test_a_second_stack_on_the_same_state_folder_is_refused(stack: Stack) -> None:
    with pytest.raises(Conflict, match="another stack runs on"), Stack(make_options(stack.state, free_port())):
        pass
    assert is_ready(stack)


@pytest.mark.parametrize("name", ["evaluator-0", "trainer", "generator", "valkey"])
def test_a_killed_service_is_started_again(name: str, stack: Stack) -> None:
    before = stack.pids()[name]
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: stack.pids().get(name, before) != before, 60)
    wait_until(lambda: is_ready(stack), 120)


def test_nothing_is_left_when_a_stack_is_stopped(tmp_path: Path) -> None:
    with Stack(make_options(tmp_path, free_port())) as stack:
        wait_until(lambda: is_ready(stack), 120)
        sessions = set(stack.pids().values())
        assert members(sessions)
    wait_until(lambda: members(sessions) == {}, 10)


def test_nothing_is_left_when_the_stack_itself_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from sparsesmith.runtime.stack import Stack\n"
        "from tests.runtime.test_stack import is_ready, make_options, wait_until\n"
        "with Stack(make_options(Path(sys.argv[1]), int(sys.argv[2]))) as stack:\n"
        "    wait_until(lambda: is_ready(stack), 120)\n"
        "    print(*stack.pids().values(), flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path), str(free_port())],
        stdout=subprocess.PIPE,
        env={**os.environ, **ENVIRONMENT},
        cwd=ROOT,
    )
    assert parent.stdout is not None
    sessions = set(map(int, parent.stdout.readline().split()))
    assert len(sessions) == len(NAMES)
    parent.kill()
    parent.wait()
    wait_until(lambda: members(sessions) == {}, 30)


def test_a_stack_that_cannot_start_leaves_nothing_and_lets_go_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "trainer.log").mkdir()  # The last service has nowhere to write.
    events: list[str] = []
    with pytest.raises(IsADirectoryError), Stack(make_options(tmp_path, free_port()), on_event=events.append):
        pass
    pids = {int(event.rsplit(" ", 1)[1].rstrip(")")) for event in events}
    assert len(pids) == 2
    wait_until(lambda: members(pids) == {}, 10)
    (tmp_path / "logs" / "trainer.log").rmdir()
    with Stack(make_options(tmp_path, free_port())):
        pass


def test_a_long_log_is_put_aside_and_only_the_latest_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "evaluator-0.log"
    put_aside(log)  # The first start.
    log.write_bytes(b"1" * MOST_LOG_BYTES)
    put_aside(log)
    assert log.stat().st_size == MOST_LOG_BYTES
    for digit in (b"2", b"3"):
        log.write_bytes(digit * (MOST_LOG_BYTES + 1))
        put_aside(log)
    assert [path.name for path in tmp_path.iterdir()] == ["evaluator-0.old.log"]
    assert (tmp_path / "evaluator-0.old.log").read_bytes()[:1] == b"3"
