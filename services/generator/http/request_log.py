"""One line in the log and one count for each request, under an id that the client gave or is given.

The id stands in the answer's X-Request-Id and in every line that is logged for the request.
"""

import logging
import re
import secrets
import time
from contextvars import ContextVar

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.generator.metrics import Metrics

log = logging.getLogger("services.generator.requests")

HEADER = "X-Request-Id"
_GIVEN = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
"""Others are replaced: they go into the log and into a header."""
_ROUTINE = ("/healthz", "/readyz", "/metrics")
"""Asked every few seconds by machines: told at debug level while they succeed."""
_MAX_PATH_CHARACTERS = 200
_FIRST_ERROR = 400

_request_id: ContextVar[str] = ContextVar("request_id", default="")


class RequestIds(logging.Filter):
    """For a handler whose format has `%(request)s`: ` [request ID]` on lines that belong to one."""

    def filter(self, record: logging.LogRecord) -> bool:
        request_id = _request_id.get()
        record.request = f" [request {request_id}]" if request_id else ""
        return True


class RequestLog:
    """ASGI middleware, outermost: it sees errors as they are answered."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER, "")
        exchange = _Exchange(scope, given if _GIVEN.fullmatch(given) else secrets.token_hex(8))
        token = _request_id.set(exchange.request_id)
        try:
            await self._app(scope, exchange.receiving(receive), exchange.sending(send))
        finally:
            self._tell(exchange)
            _request_id.reset(token)

    def _tell(self, exchange: "_Exchange") -> None:
        seconds = time.monotonic() - exchange.began
        self._metrics.answered(exchange.method, exchange.route, exchange.status, seconds)
        is_routine = exchange.route in _ROUTINE and exchange.status < _FIRST_ERROR
        log.log(logging.DEBUG if is_routine else logging.INFO, "%s", exchange.line(seconds))


class _Exchange:
    """What is seen of a request and its answer as they pass."""

    def __init__(self, scope: Scope, request_id: str) -> None:
        self.request_id = request_id
        self.began = time.monotonic()
        self.status = 0
        """0: the client left before its answer began."""
        self._scope = scope
        self._location = ""
        self._bytes_in = 0

    @property
    def method(self) -> str:
        return str(self._scope["method"])

    @property
    def route(self) -> str:
        """The path with names for its parts; `unknown` for one that nobody serves."""
        return str(getattr(self._scope.get("route"), "path", "unknown"))

    def line(self, seconds: float) -> str:
        path = self._scope["raw_path"].decode("ascii", "replace")[:_MAX_PATH_CHARACTERS]
        client = (self._scope.get("client") or ("unknown",))[0]
        job_id = self._scope.get("path_params", {}).get("job_id") or self._location.rpartition("/")[2]
        job = f", job {job_id[:_MAX_PATH_CHARACTERS]!r}" if job_id else ""
        answered = self.status or "no answer"
        key = getattr(self._scope.get("state", {}).get("caller"), "key", None)
        whose = "" if key is None else f" with key {key.key_id} ({key.name})"
        return f"{self.method} {path} {answered} in {seconds:.3f} s, {self._bytes_in} bytes from {client}{whose}{job}"

    def receiving(self, receive: Receive) -> Receive:
        async def counted() -> Message:
            message = await receive()
            self._bytes_in += len(message.get("body", b""))
            return message

        return counted

    def sending(self, send: Send) -> Send:
        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[HEADER] = self.request_id
                self._location = headers.get("location", "") if self.method == "POST" else ""
            await send(message)

        return marked
