"""API keys: the command line makes and revokes them, the generator asks whether one opens.

A key is `ssk_ID_SECRET`. It is shown once; kept are its id and the hash of the whole. Each change is one transaction,
with its line in the audit log.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Literal

import redis
from pydantic import ValidationError

from sparsesmith.errors import Conflict, InvalidOption, LimitExceeded, NotFound
from sparsesmith.transport.audit import write_entry
from sparsesmith.transport.connection import Redis, answering
from sparsesmith_proto.keys import ApiKey, AuditEntry, Quotas

_KEYS = "sparsesmith:keys"
MAX_KEYS = 10_000
"""Revoked ones included: they name the owners of jobs and of lines in the audit log."""
SECRET_BYTES = 32
_FORM = re.compile(r"ssk_([0-9a-f]{12})_[A-Za-z0-9_-]{43}")


class KeyStore:
    """Keys by id."""

    def __init__(self, connection: Redis, clock: Callable[[], float] = time.time) -> None:
        """`clock`: seconds since 1970."""
        self._connection = connection
        self._clock = clock

    def create(self, name: str, quotas: Quotas) -> tuple[ApiKey, str]:
        """A new key, and its text, which is nowhere else.

        Raises InvalidOption for no name, Conflict for the name of a key that opens, LimitExceeded, Unavailable.
        """
        key_id = secrets.token_hex(6)
        text = f"ssk_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"
        try:
            key = ApiKey(key_id=key_id, name=name, digest=_digest(text), created_at=self._now(), quotas=quotas)
        except ValidationError as error:
            raise InvalidOption(
                f"name: {name!r} is not 1 to 64 letters, digits and _.@-", field="name", value=name
            ) from error

        def added(keys: list[ApiKey]) -> ApiKey:
            _check_room(name, keys)
            return key

        return self._change(added, "key_created"), text

    def revoke(self, name_or_id: str) -> ApiKey:
        """From now on it opens nothing. Raises NotFound for a key that is not, or is revoked already, Unavailable."""

        def revoked(keys: list[ApiKey]) -> ApiKey:
            return _opening(name_or_id, keys).model_copy(update={"revoked_at": self._now()})

        return self._change(revoked, "key_revoked")

    def all(self) -> list[ApiKey]:
        """The oldest first, revoked ones included. Raises Unavailable."""
        with answering():
            return _read(self._connection.hvals(_KEYS))

    def opened_by(self, text: str) -> ApiKey | None:
        """The key whose text this is; None where it is none, or a revoked one's. Raises Unavailable."""
        form = _FORM.fullmatch(text)
        with answering():
            kept = None if form is None else self._connection.hget(_KEYS, form[1])
        if kept is None:
            return None
        key = ApiKey.model_validate_json(kept)
        is_right = hmac.compare_digest(key.digest, _digest(text))
        return key if is_right and key.revoked_at is None else None

    def _change(
        self, change: Callable[[list[ApiKey]], ApiKey], action: Literal["key_created", "key_revoked"]
    ) -> ApiKey:
        """Store a key as it becomes by what all keys are now."""
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    pipeline.watch(_KEYS)
                    key = change(_read(pipeline.hvals(_KEYS)))
                    pipeline.multi()
                    pipeline.hset(_KEYS, key.key_id, key.model_dump_json())
                    write_entry(pipeline, AuditEntry(at=self._now(), action=action, key_id=key.key_id, name=key.name))
                    pipeline.execute()
                    return key
                except redis.exceptions.WatchError:
                    continue

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")


def _check_room(name: str, keys: list[ApiKey]) -> None:
    if any(key.name == name and key.revoked_at is None for key in keys):
        raise Conflict(f"there is a key {name!r} already: revoke it first", field="name", value=name)
    if len(keys) >= MAX_KEYS:
        raise LimitExceeded(f"{len(keys)} keys have been made: at most {MAX_KEYS}", field="keys", limit=MAX_KEYS)


def _opening(name_or_id: str, keys: list[ApiKey]) -> ApiKey:
    found = [key for key in keys if key.revoked_at is None and name_or_id in (key.key_id, key.name)]
    if not found:
        raise NotFound(f"no key {name_or_id!r} that opens", field="name", value=name_or_id)
    return found[0]


def _read(kept: Iterable[bytes]) -> list[ApiKey]:
    keys = [ApiKey.model_validate_json(text) for text in kept]
    return sorted(keys, key=lambda key: (key.created_at, key.key_id))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
