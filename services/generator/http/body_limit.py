"""Bounds what a request may send, while it arrives: nothing beyond the limit is read."""

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sparsesmith.errors import LimitExceeded

JSON = "application/json"


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class BodyLimit:
    """ASGI middleware. LimitExceeded is raised where the route reads the body, so that it is mapped like any other."""

    def __init__(self, app: ASGIApp, *, max_json_bytes: int, max_body_bytes: int) -> None:
        self._app = app
        self._max_json_bytes = max_json_bytes
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        limit = self._max_json_bytes if media_type(headers) == JSON else self._max_body_bytes
        await self._app(scope, _bounded(receive, limit, headers.get("content-length", "")), send)


def _bounded(receive: Receive, limit: int, declared: str) -> Receive:
    received = int(declared) if declared.isdecimal() and int(declared) > limit else 0

    async def bounded() -> Message:
        nonlocal received
        if received <= limit:
            message = await receive()
            received += len(message.get("body", b""))
            if received <= limit:
                return message
        raise LimitExceeded(
            f"the body has more than {limit} bytes", field="body", value=f"{received} bytes or more", limit=limit
        )

    return bounded
