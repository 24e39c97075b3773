"""The embedded server: where its socket lies, who may use its folder, and when it ends."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sparsesmith.errors import Conflict, Unavailable
from sparsesmith.runtime import embedded_valkey
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import connect, is_answering
from tests.transport.workers import ROOT, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    server = EmbeddedValkey(tmp_path)
    server.start()
    yield server
    server.stop()


def test_it_writes_every_change_to_disk_before_it_answers(server: EmbeddedValkey) -> None:
    settings = connect(server.address).config_get("append*")
    assert (settings["appendonly"], settings["appendfsync"]) == ("yes", "always")


def test_it_listens_on_no_port_and_on_a_socket_of_its_own_user(server: EmbeddedValkey) -> None:
    assert connect(server.address).config_get("port") == {"port": "0"}
    socket = Path(server.address.removeprefix("unix://"))
    assert socket.parent.stat().st_mode & 0o777 == 0o700


def test_a_server_that_stopped_leaves_nothing_outside_its_folder(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    server.start()
    socket = Path(server.address.removeprefix("unix://"))
    assert socket.exists()
    server.stop()
    assert not socket.parent.exists()


def test_a_very_long_folder_has_a_short_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 50) / ("longer" * 30)
    server = EmbeddedValkey(folder)
    server.start()
    assert len(server.address) < 107
    assert is_answering(connect(server.address))
    server.stop()


def test_a_very_long_temporary_folder_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("t" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert len(EmbeddedValkey(tmp_path / "state").address) < 107


def test_a_second_server_on_the_same_folder_is_refused(
    server: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_valkey, "LOCK_TIMEOUT_S", 0.2)
    with pytest.raises(Conflict, match="another server runs on"):
        EmbeddedValkey(tmp_path).start()
    assert is_answering(connect(server.address))


def test_a_killed_server_starts_again_with_its_data(server: EmbeddedValkey) -> None:
    connection = connect(server.address)
    connection.set("key", "value")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not server.is_alive())
    server.start()
    assert connection.get("key") == b"value"


def test_a_server_that_cannot_start_says_where_its_log_is(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("not a folder")
    with pytest.raises(Unavailable, match=r"see .*valkey\.log"):
        EmbeddedValkey(tmp_path).start()


def test_a_server_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    with pytest.raises(AssertionError):
        wait_until(lambda: not server.is_alive(), timeout_s=0.5)
    server.stop()


def test_a_server_ends_with_a_parent_that_is_killed_and_its_folder_can_be_used_at_once(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from sparsesmith.runtime.embedded_valkey import EmbeddedValkey\n"
        "server = EmbeddedValkey(Path(sys.argv[1])); server.start(); print(server.pid, flush=True); time.sleep(60)\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    successor = EmbeddedValkey(tmp_path)
    successor.start()
    assert is_answering(connect(successor.address))
    successor.stop()
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        assert "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
