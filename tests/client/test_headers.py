"""Headers of the user's own: sent with every request, and never repeated in a message."""

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from sparsesmith.client import AsyncClient, Client
from sparsesmith.client.headers import client_headers, parsed_headers
from sparsesmith.errors import InvalidOption


class _Handler(BaseHTTPRequestHandler):
    """Answers everything with 200 and keeps the headers that came."""

    def do_GET(self) -> None:
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Listener(HTTPServer):
    """A server that remembers the headers of its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@pytest.fixture
def listener() -> Iterator[Listener]:
    server = Listener()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_headers_go_with_every_request_and_win_over_those_of_the_environment(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSESMITH_HEADERS", "Authorization: Bearer one\nX-Team: sparse : dense\n")
    with Client(listener.url, {"authorization": "Bearer two"}) as client:
        assert client.is_ready()

    async def ask() -> bool:
        async with AsyncClient(listener.url, {"X-Team": "other"}) as client:
            return await client.is_ready()

    assert asyncio.run(ask())
    told = [(seen["authorization"], seen["x-team"]) for seen in listener.seen]
    assert told == [("Bearer two", "sparse : dense"), ("Bearer one", "other")]


def test_lines_are_read_as_headers_are_written() -> None:
    lines = ["A: 1", "", "  ", "B:two: 2", "C:", "a: 3"]
    assert parsed_headers(lines) == {"A": "1", "B": "two: 2", "C": "", "a": "3"}
    assert client_headers(None, {"SPARSESMITH_HEADERS": "\n".join(lines)})["A"] == "3"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("Bearer secret", "no colon"),
        ("Bad name: secret", "'Bad name' is not the name"),
        (": secret", "'' is not the name"),
        ("A: secret\x00", "value of A"),
        ("A: secret\r\nB: 1", "value of A"),
        ("A: s\u00e9cret", "value of A"),
        ("Content-Type: secret", "set by the client itself"),
    ],
)
def test_what_is_no_header_is_refused_without_its_value(line: str, part: str) -> None:
    with pytest.raises(InvalidOption, match=part) as caught:
        client_headers(parsed_headers([line]), {})
    assert "secret" not in caught.value.message
    assert "secret" not in (caught.value.value or "")


def test_a_key_is_sent_as_authorization_and_the_nearest_word_counts() -> None:
    environment = {"SPARSESMITH_KEY": "of-the-environment\n"}
    assert client_headers(None, environment)["authorization"] == "Bearer of-the-environment"
    assert client_headers(None, environment, "given")["authorization"] == "Bearer given"
    proxy = environment | {"SPARSESMITH_HEADERS": "Authorization: Basic x"}
    assert client_headers(None, proxy)["authorization"] == "Basic x"
    assert client_headers(None, proxy, "given")["authorization"] == "Bearer given"
    assert client_headers({"Authorization": "own"}, proxy, "given")["authorization"] == "own"
    with pytest.raises(InvalidOption) as told:
        client_headers(None, {}, "a\nsecret")
    assert "secret" not in told.value.message
