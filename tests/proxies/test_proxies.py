"""The files for Caddy and nginx of docs/operations.md, run by the real ones before a server that asks for keys."""

import os
import re
import signal
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.ports import free_port
from sparsesmith.transport.connection import connect
from sparsesmith.transport.keys import KeyStore
from sparsesmith_proto.keys import Quotas
from tests.generator.live_service import Evaluators, live_service

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
SCRIPT = Path(__file__).with_name("proxy.sh")
MATRIX = {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]}
REQUEST = {"matrix": MATRIX, "budget": {"candidates": 2, "seconds": 60}}
STARTS_S = 60
NGINX = """
daemon off;
%(user)s
error_log %(folder)s/error.log;
pid %(folder)s/nginx.pid;
events {}
http {
  client_body_temp_path %(folder)s/body;
  proxy_temp_path %(folder)s/proxied;
  fastcgi_temp_path %(folder)s/fastcgi;
  uwsgi_temp_path %(folder)s/uwsgi;
  scgi_temp_path %(folder)s/scgi;
%(site)s
}
"""
CADDY = """
{
  admin off
  auto_https disable_redirects
  skip_install_trust
}
%(site)s
"""


def block(first: str) -> str:
    """The page's block of code that begins so."""
    (found,) = re.findall(rf"^```\n({re.escape(first)}.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def placed(text: str, changes: dict[str, str]) -> str:
    """The page's text, at this test's addresses and places; each must be there."""
    for word, place in changes.items():
        assert word in text, word
        text = text.replace(word, place)
    return text


def caddy_file(folder: Path, port: int, upstream: int) -> str:
    site = placed(
        block("gpu.example.org {"),
        {
            "gpu.example.org {": f"https://localhost:{port} {{\n  tls {folder}/cert.pem {folder}/key.pem",
            "127.0.0.1:8000": f"127.0.0.1:{upstream}",
            "  log {": f"  log {{\n    output file {folder}/access.log",
        },
    )
    return CADDY % {"site": site}


def nginx_file(folder: Path, port: int, upstream: int) -> str:
    site = placed(
        block("log_format without_query"),
        {
            "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
            "server_name gpu.example.org": "server_name localhost",
            "/etc/ssl/gpu.example.org.pem": f"{folder}/cert.pem",
            "/etc/ssl/gpu.example.org.key": f"{folder}/key.pem",
            "/var/log/nginx/sparsesmith.log": f"{folder}/access.log",
            "127.0.0.1:8000": f"127.0.0.1:{upstream}",
        },
    )
    return NGINX % {"folder": folder, "site": site, "user": "user root;" if os.getuid() == 0 else ""}


@dataclass
class Proxied:
    """A server behind a proxy, as its users see it."""

    http: httpx.Client
    key: dict[str, str]
    evaluators: Evaluators
    log: Path


def program(name: str) -> str:
    found = subprocess.run([SCRIPT, name], capture_output=True, text=True, check=False, timeout=280)
    if found.returncode:
        pytest.skip(found.stderr.strip())
    return found.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module", params=["caddy", "nginx"])
def proxied(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    name: str = request.param
    path, folder, port, evaluators = program(name), tmp_path_factory.mktemp(name), free_port(), Evaluators()
    make_certificate(folder)
    valkey = EmbeddedValkey(folder / "valkey")
    valkey.start()
    _, text = KeyStore(connect(valkey.address)).create("alice", Quotas())
    with live_service(valkey.address, evaluators, keys="on", cache_ttl_s=0) as server:
        upstream = int(server.base_url.port or 0)
        file = folder / "proxy.conf"
        file.write_text((caddy_file if name == "caddy" else nginx_file)(folder, port, upstream))
        command = [path, "run", "--adapter", "caddyfile", "--config"] if name == "caddy" else [path, "-p", folder, "-c"]
        with (folder / "proxy.log").open("wb") as output:
            process = subprocess.Popen(
                [*command, file],
                stdout=output,
                stderr=output,
                env={**os.environ, "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)},
            )
        try:
            trust = ssl.create_default_context(cafile=str(folder / "cert.pem"))
            with httpx.Client(base_url=f"https://localhost:{port}", verify=trust, timeout=60) as http:
                wait_until_answering(http, process, folder / "proxy.log")
                yield Proxied(http, {"Authorization": f"Bearer {text}"}, evaluators, folder / "access.log")
        finally:
            evaluators.released.set()
            process.send_signal(signal.SIGTERM)
            process.wait(30)
    valkey.stop()


def make_certificate(folder: Path) -> None:
    """Made by ourselves, for this machine's own name."""
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-noenc",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run(command, check=True, capture_output=True)


def wait_until_answering(http: httpx.Client, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + STARTS_S
    while True:
        assert process.poll() is None, log.read_text()
        try:
            assert http.get("/healthz").json() == {"status": "alive"}
        except httpx.TransportError:
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.1)
        else:
            return


def test_requests_and_uploads_go_through_by_tls_and_keys_are_asked_for(proxied: Proxied) -> None:
    assert proxied.http.post("/v1/kernels", json=REQUEST).status_code == 401
    answer = proxied.http.post("/v1/kernels", json=REQUEST, headers={**proxied.key, "Prefer": "wait=30"})
    assert (answer.status_code, answer.json()["status"]["state"]) == (200, "finished")
    market = b"%%MatrixMarket matrix coordinate pattern general\n3 4 2\n1 1\n2 3\n"
    files = {"file": ("a.mtx", market)}
    assert proxied.http.post("/v1/kernels", files=files, headers=proxied.key).status_code == 202


@pytest.mark.parametrize("path", ["/operator", "/operator/", "/operator/policy/rollback", "//operator/policy/rollback"])
def test_what_operators_ask_does_not_go_through(proxied: Proxied, path: str) -> None:
    for answer in (proxied.http.get(path, headers=proxied.key), proxied.http.post(path, json={}, headers=proxied.key)):
        assert answer.status_code in (404, 405)  # The service itself would say 403, or what it did.
        assert "operators ask from" not in answer.text.lower()


def test_events_come_while_the_job_runs(proxied: Proxied) -> None:
    proxied.evaluators.released.clear()
    location = proxied.http.post("/v1/kernels", json=REQUEST, headers=proxied.key).headers["location"]
    with proxied.http.stream("GET", f"{location}/events", headers=proxied.key) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("event: "))
        assert next(lines) == "event: queued"  # Nothing more can come before the evaluators are let go.
        proxied.evaluators.released.set()
        assert list(lines)[-1] == "event: finished"


def test_the_log_tells_requests_and_no_secret(proxied: Proxied) -> None:
    location = proxied.http.post("/v1/kernels", json=REQUEST, headers=proxied.key).headers["location"]
    secret = proxied.http.get(f"{location}/permalink", headers=proxied.key).json()["secret"]
    job = location.rpartition("/")[2]
    for answer in (
        proxied.http.get(location, params={"secret": secret}),
        proxied.http.get(f"/jobs/{job}", params={"secret": secret}),
        proxied.http.get(location, headers={"X-Job-Secret": secret}),
    ):
        assert answer.status_code == 200
    end = time.monotonic() + 20
    while (told := proxied.log.read_text()).count(job) < 4 and time.monotonic() < end:
        time.sleep(0.1)
    assert told.count(job) >= 4
    assert secret not in told
    assert proxied.key["Authorization"].split()[1] not in told
