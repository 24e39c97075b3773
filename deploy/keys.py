"""What the composed stack keeps secret, made once: Redis's users and certificate, and the addresses that go with them.

    python keys.py REDIS_FOLDER SERVICES_FOLDER QUEUE_FOLDER

Each folder is a volume that only those mount who need it. What is there is kept; a password that is given replaces the
one that was made, and other names in QUEUE_HOSTS a certificate. Needs Python and the `openssl` command, nothing else.

REDIS_PASSWORD  of the services; empty: one is made
QUEUE_PASSWORD  of third parties, who may queue evaluations (docs/queue.md); empty: one is made
QUEUE_HOSTS     names and addresses by which third parties reach Redis, separated by commas
QUEUE_PORT      the port that they reach
"""

import hashlib
import ipaddress
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

SERVICES_PORT = 6379
TLS_PORT = 6380
CERTIFICATE_DAYS = 3650

GUEST_RIGHTS = (
    # What connects, and what groups commands.
    "-@all +auth +hello +ping +echo +quit +reset +client|setname +client|id +info"
    " +multi +exec +discard +watch +unwatch",
    # Own jobs and their results, by the beginning of their names; matrices and values, by their digests.
    "(+hset +hget +hmget +hgetall +hexists +exists +expire +persist +ttl +del +unlink +type"
    " +xread +xrange +xrevrange +xlen"
    " ~rq:job:guest-* ~rq:results:guest-* ~sparsesmith:pattern:* ~sparsesmith:values:*)",
    # The queue: to its end, out of it by name, how far a job is.
    "(+rpush +lrem +lpos +llen ~rq:queue:evaluations)",
    "(+sadd ~rq:queues)",
)
"""Of the user `queue`, in the words of Redis's access lists: no other key, no name of one, no setting of the server."""


@dataclass(frozen=True)
class Wishes:
    """What the environment asks for."""

    redis_password: str
    queue_password: str
    hosts: tuple[str, ...]
    port: int

    @classmethod
    def of_environment(cls) -> Self:
        """Raises SystemExit for a password or a port that cannot be."""
        hosts = tuple(host.strip() for host in os.environ.get("QUEUE_HOSTS", "").split(",") if host.strip())
        port = os.environ.get("QUEUE_PORT", "") or str(TLS_PORT)
        if not (port.isdecimal() and 1 <= int(port) <= 65535):
            raise SystemExit(f"QUEUE_PORT is {port!r}: a port from 1 to 65535")
        for host in hosts:
            if not re.fullmatch(r"[A-Za-z0-9.:-]{1,253}", host):
                raise SystemExit(f"QUEUE_HOSTS names {host!r}: names and addresses, separated by commas")
        return cls(_password("REDIS_PASSWORD"), _password("QUEUE_PASSWORD"), hosts or ("localhost",), int(port))


def make(redis: Path, services: Path, queue: Path, wishes: Wishes) -> None:
    """All files, each whole or not there."""
    password = _kept(redis / "password", wishes.redis_password)
    guest_password = _kept(queue / "password", wishes.queue_password)
    _make_certificate(redis, wishes.hosts)
    _write(redis / "redis.conf", "\n".join(_configuration(redis, password, guest_password)) + "\n")
    _write(services / "SPARSESMITH_REDIS_URL", f"redis://:{password}@redis:{SERVICES_PORT}/0")
    _write(queue / "certificate.pem", (redis / "certificate.pem").read_text())
    host = f"[{wishes.hosts[0]}]" if ":" in wishes.hosts[0] else wishes.hosts[0]
    _write(queue / "address", f"rediss://queue:{guest_password}@{host}:{wishes.port}/0\n")


def _configuration(folder: Path, password: str, guest_password: str) -> Iterator[str]:
    yield f"user default on #{_sha256(password)} ~* &* +@all"
    yield f"user queue on #{_sha256(guest_password)} resetchannels {' '.join(GUEST_RIGHTS)}"
    yield f"tls-port {TLS_PORT}"
    yield f"tls-cert-file {folder / 'certificate.pem'}"
    yield f"tls-key-file {folder / 'key.pem'}"
    yield f"tls-ca-cert-file {folder / 'certificate.pem'}"
    yield "tls-auth-clients no"


def _make_certificate(folder: Path, hosts: tuple[str, ...]) -> None:
    """Signed by itself: who connects is handed this very certificate to trust."""
    names = ",".join(_alternative_name(host) for host in hosts)
    made_for = folder / "hosts"
    if made_for.exists() and made_for.read_text() == names:
        return
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"]
    command += ["-days", str(CERTIFICATE_DAYS), "-subj", "/CN=sparsesmith queue", "-addext", f"subjectAltName={names}"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    (folder / "key.pem").chmod(0o644)  # Redis is another user; nobody else has the volume.
    _write(made_for, names)


def _alternative_name(host: str) -> str:
    try:
        return f"IP:{ipaddress.ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _password(variable: str) -> str:
    """Letters and digits: it stands in addresses and in Redis's configuration."""
    given = os.environ.get(variable, "")
    if given and not re.fullmatch(r"[A-Za-z0-9_.-]{16,200}", given):
        raise SystemExit(f"{variable}: 16 to 200 letters, digits and _.-")
    return given


def _kept(path: Path, given: str) -> str:
    """The password that is given, else that of the last time, else a new one."""
    password = given or (path.read_text() if path.exists() else secrets.token_hex(32))
    _write(path, password)
    return password


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text)
    fresh.replace(path)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


if __name__ == "__main__":
    redis_folder, service_folder, queue_folder = map(Path, sys.argv[1:4])
    make(redis_folder, service_folder, queue_folder, Wishes.of_environment())
