"""Hop command line -> Redis -> generator: API keys, what each may take, and who ran what."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from sparsesmith_proto.message import Bytes, Digest, Message, Seconds

KeyId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]
"""The part of a key that is no secret: it stands in the key, in lists and in the audit log."""

KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")]
"""Whom a key was made for: 1 to 64 letters, digits and `_.@-`."""


class Quotas(Message):
    """What one key may take; what is used up is answered 429. Days are those of UTC."""

    unfinished_jobs: int = Field(default=32, ge=1, le=100_000)
    """Accepted and not ended: waiting and running ones."""
    evaluator_seconds_a_day: Seconds = Field(default=24 * 3600, gt=0)
    """Of evaluators, that is of GPUs. A job that was accepted is answered, and what it takes beyond counts."""
    bytes_a_day: Bytes = Field(default=16 * 2**30, ge=1)
    """Of request bodies."""
    requests_a_minute: int = Field(default=1200, ge=1, le=1_000_000)


class ApiKey(Message):
    """A key as it is kept: of the secret its hash alone."""

    key_id: KeyId
    name: KeyName
    digest: Digest
    """SHA-256 of the whole key. The secret in it is 256 random bits: a slow hash would protect nothing more."""
    created_at: str
    """ISO 8601, UTC."""
    quotas: Quotas = Quotas()
    revoked_at: str | None = None
    """None: it opens."""


class AuditEntry(Message):
    """Who did what. Written in the transaction that does it, and never changed."""

    at: str
    """ISO 8601, UTC."""
    action: Literal["key_created", "key_revoked", "job_accepted", "job_cancelled"]
    key_id: KeyId | None = None
    """Of who did it, or the key that it was done to. None: the service asks for no keys."""
    name: KeyName | None = None
    """The key's."""
    client: str | None = None
    """Address that the request came from; None: the command line."""
    job_id: str | None = None
    detail: str = Field(default="", max_length=200)
    """What was run: kind of job, operation, digest of the matrix."""
