"""A real HTTP server that speaks as an OpenAI-compatible address does, by a script: what it was asked is kept."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Messages = Sequence[Mapping[str, str]]


@dataclass(frozen=True)
class Says:
    """An answer, in pieces; cut off where it does not end."""

    text: str
    ends: bool = True
    prompt_tokens: int = 100
    completion_tokens: int = 10


@dataclass(frozen=True)
class Status:
    """No answer."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Silence:
    """Nothing for so long, behind a beginning."""

    seconds: float
    before: str = ""


@dataclass(frozen=True)
class Body:
    """These very bytes."""

    body: str
    content_type: str = "text/event-stream"


Reply = Says | Status | Silence | Body


@dataclass
class Address:
    """Where it listens, and what it was asked."""

    url: str
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


class Script:
    """What is said, reply by reply."""

    def __init__(self, address: Address, replies: Callable[[Messages], Reply] | Sequence[Reply]) -> None:
        self._address = address
        self._replies = replies
        self._lock = threading.Lock()

    def reply_to(self, body: dict[str, Any], key: str | None) -> Reply:
        with self._lock:
            self._address.asked.append(body)
            self._address.keys.append(key)
            if callable(self._replies):
                return self._replies(body["messages"])
            return self._replies[min(len(self._address.asked), len(self._replies)) - 1]


class Server(ThreadingHTTPServer):
    """With its script."""

    daemon_threads = True

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Speaker)
        self.script = script


class Speaker(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reply = self.server.script.reply_to(body, self.headers.get("authorization"))
        with suppress(OSError):  # The client may have gone, as it should.
            self.say(reply)
        self.close_connection = True

    def say(self, reply: Reply) -> None:
        match reply:
            case Status(status=status, headers=headers):
                self.begin(status, "application/json", headers)
                self.wfile.write(b'{"error": {"message": "no"}}')
            case Body(body=text, content_type=kind):
                self.begin(200, kind)
                self.wfile.write(text.encode())
            case Silence(seconds=seconds, before=before):
                self.begin(200, "text/event-stream")
                self.piece(before)
                time.sleep(seconds)
            case Says():
                self.begin(200, "text/event-stream")
                self.speak(reply)

    def speak(self, reply: Says) -> None:
        for start in range(0, len(reply.text), 100):
            self.piece(reply.text[start : start + 100])
        if reply.ends:
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
            self.event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

    def begin(self, status: int, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()

    def piece(self, text: str) -> None:
        self.event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})

    def event(self, chunk: object) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        self.wfile.flush()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is said of requests."""


@contextmanager
def endpoint_that(replies: Callable[[Messages], Reply] | Sequence[Reply]) -> Iterator[Address]:
    """Replies one after the other, the last again and again; or as a function of the messages has it."""
    address = Address("")
    server = Server(Script(address, replies))
    address.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
