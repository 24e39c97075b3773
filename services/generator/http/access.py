"""Who may ask: API keys, and what each may take. Whatever is not listed as open needs a key, where keys are asked for.

A job opens to the key that asked for it; for reading also to whoever has its permalink's secret. To any other key it is
a job that does not exist.

Not protected against: keys and permalinks on a wire without TLS, permalinks in the logs of a proxy, and what can be
told from times (an answer from the cache says that somebody asked for the same matrix).
"""

import asyncio
import ipaddress
import logging
import re
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.generator.channels import Channels
from services.generator.problems import error_response
from services.generator.settings import GeneratorSettings
from sparsesmith.errors import NotFound, SparsesmithError, Unauthorized, Unavailable
from sparsesmith.transport.job_store import Asker
from sparsesmith_proto.keys import ApiKey

log = logging.getLogger(__name__)

SECRET_HEADER = "X-Job-Secret"
SECRET_PARAMETER = "secret"
OPEN = re.compile(
    r"/|/(compare|fleet|docs|openapi\.json|healthz|readyz|v1/signing-key)|/jobs/[^/]+|/page/.*|/operator/.*"
)
"""Paths that say nothing of any job: the page's frames and files, the interface's own description, whether the service
is alive, what its reports are verified with. What operators ask comes from this machine alone (`operator_routes`)."""
OF_A_JOB = re.compile(r"/v1/(?:kernels|evaluations)/([^/]+)(?:/[^/]+)?")
READING = ("GET", "HEAD")
RESERVED_BYTES = 8 * 2**20
"""Of a body that does not say how long it is, counted ahead of what arrives."""


def asks_for_keys(settings: GeneratorSettings) -> bool:
    """Whether requests need a key: as the settings say, or by who can reach the service."""
    if settings.keys == "auto":
        return not _is_loopback(settings.published_on or settings.host)
    return settings.keys == "on"


def _is_loopback(host: str) -> bool:
    """Of an address or a name; a name that is not `localhost` may be anybody's."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Caller:
    """Who sends a request, as far as it was found out."""

    key: ApiKey | None = None
    opened_job: str | None = None
    """The one whose permalink's secret came with it."""
    is_trusted: bool = False
    """The service asks for no keys."""


class Access:
    """ASGI middleware: finds out the caller of each request, counts what it takes, and refuses who has no key."""

    def __init__(self, app: ASGIApp, *, channels: Channels, asks_for_keys: bool) -> None:
        self._app = app
        self._channels = channels
        self._asks_for_keys = asks_for_keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            caller = await asyncio.to_thread(self._admitted, scope)
        except SparsesmithError as error:
            await error_response(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if caller.key is None or scope["method"] in READING:
            await self._app(scope, receive, send)
            return
        await self._counted(caller.key, scope, receive, send)

    def _admitted(self, scope: Scope) -> Caller:
        """Raises Unauthorized, QuotaExceeded, Unavailable."""
        if not self._asks_for_keys:
            return Caller(is_trusted=True)
        key = self._key(scope)
        opened = self._opened_job(scope)
        if key is None and opened is None and not OPEN.fullmatch(scope["path"]):
            raise Unauthorized("this server asks for a key, and none came that opens it: Authorization: Bearer KEY")
        if key is not None:
            self._channels.accounts.count_request(key)
        return Caller(key, opened)

    def _key(self, scope: Scope) -> ApiKey | None:
        scheme, _, text = Headers(scope=scope).get("authorization", "").partition(" ")
        return self._channels.keys.opened_by(text.strip()) if scheme.lower() == "bearer" else None

    def _opened_job(self, scope: Scope) -> str | None:
        """By the secret of its permalink."""
        job = OF_A_JOB.fullmatch(scope["path"])
        secret = secret_of(scope)
        if job is None or not secret or scope["method"] not in READING:
            return None
        return job[1] if self._channels.permalinks.opens(job[1], secret) else None

    async def _counted(self, key: ApiKey, scope: Scope, receive: Receive, send: Send) -> None:
        """A request whose body is counted against the day's bytes before it is read."""
        body = _CountedBody(key, self._channels)
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        try:
            if scope["method"] == "POST" and "idempotency-key" not in headers:
                # Again when it is stored; here before its matrix is sent.
                await asyncio.to_thread(self._channels.accounts.check_new_job, key)
            await body.reserve(int(declared) if declared.isdecimal() else 0)
        except SparsesmithError as error:
            await error_response(error)(scope, receive, send)
            return
        try:
            await self._app(scope, body.receiving(receive), send)
        finally:
            await body.settle()


class _CountedBody:
    """A body as it arrives. What is reserved for one that a killed service never finished stays counted."""

    def __init__(self, key: ApiKey, channels: Channels) -> None:
        self._key = key
        self._accounts = channels.accounts
        self._reserved: list[tuple[str, int]] = []
        self._received = 0

    async def reserve(self, num_bytes: int) -> None:
        """Raises QuotaExceeded, Unavailable."""
        if num_bytes:
            account = await asyncio.to_thread(self._accounts.reserve_bytes, self._key, num_bytes)
            self._reserved.append((account, num_bytes))

    def receiving(self, receive: Receive) -> Receive:
        """Raises QuotaExceeded where the route reads what is one too many."""

        async def counted() -> Message:
            message = await receive()
            self._received += len(message.get("body", b""))
            while self._received > sum(size for _, size in self._reserved):
                await self.reserve(RESERVED_BYTES)
            return message

        return counted

    async def settle(self) -> None:
        """Gives back what was reserved and did not come."""
        left = sum(size for _, size in self._reserved) - self._received
        for account, size in reversed(self._reserved):
            given = min(size, max(0, left))
            left -= given
            try:
                await asyncio.to_thread(self._accounts.give_back_bytes, account, given)
            except Unavailable as error:
                log.warning("%d bytes of key %s stay counted: %s", given, self._key.key_id, error)


def secret_of(scope: Scope) -> str:
    """Of a job's permalink, by header or query; empty: none."""
    query = parse_qs(scope["query_string"].decode("ascii", "replace"))
    return Headers(scope=scope).get(SECRET_HEADER) or query.get(SECRET_PARAMETER, [""])[-1]


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


CallerOf = Annotated[Caller, Depends(caller_of)]


def asker_of(request: Request) -> Asker:
    """For the job store and its audit log."""
    return Asker("" if request.client is None else request.client.host, caller_of(request).key)


AskerOf = Annotated[Asker, Depends(asker_of)]


async def may_see(request: Request) -> None:
    """Dependency of every route about a job. Raises NotFound for one of another key, as for one that is not."""
    caller, job_id = caller_of(request), request.path_params.get("job_id")
    if caller.is_trusted or job_id is None or caller.opened_job == job_id:
        return
    store = request.app.state.service.channels.jobs
    if caller.key is None or not await asyncio.to_thread(store.is_owned, job_id, caller.key.key_id):
        raise NotFound(f"no job {job_id}", field="job_id", value=job_id)
