"""How the generator listens: HTTP/1.1 by h11, in Python and slower than the C parser, but its headers have bounds.

A request's headers must be there in time and fit into `max_header_bytes`; the body's bounds are `body_limit`'s.
"""

import asyncio

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from services.generator.http.request_log import RequestLog
from services.generator.metrics import Metrics
from services.generator.settings import GeneratorSettings


def server_config(app: FastAPI, settings: GeneratorSettings, metrics: Metrics) -> uvicorn.Config:
    """Everything but signals and the logs' format."""
    return uvicorn.Config(
        RequestLog(app, metrics),
        host=settings.host,
        port=settings.port,
        http=timed_headers(settings.header_timeout_s),
        ws="none",
        h11_max_incomplete_event_size=settings.max_header_bytes,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=settings.stop_grace_s,
        log_config=None,
        access_log=False,
        server_header=False,
    )


def timed_headers(timeout_s: float) -> type[H11Protocol]:  # noqa: C901
    """uvicorn's protocol, which closes a connection whose next request's headers have not come in time."""

    class TimedHeaders(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._set_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._set_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _set_timer(self) -> None:
            """It runs while headers are awaited; between two requests uvicorn's keep-alive does."""
            if self.conn.their_state is not h11.IDLE:
                self._stop_timer()
            elif self._timer is None and not self.transport.is_closing():
                self._timer = self.loop.call_later(timeout_s, self._close)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _close(self) -> None:
            self._timer = None
            if self.conn.their_state is h11.IDLE:
                self.transport.close()

    return TimedHeaders
