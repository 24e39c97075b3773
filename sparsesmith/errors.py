"""Every error a user can meet.

SparsesmithError
├── InvalidInput            the request is wrong: HTTP 422
│   ├── InvalidMatrix       indices, shapes or a matrix file
│   ├── InvalidProgram      a kernel program outside the contract
│   ├── InvalidOption       an unknown or out-of-range option
│   └── InvalidReport       a report that is not what a server signed
├── LimitExceeded           larger than a setting allows: HTTP 413
├── Unauthorized            no key, or none that opens: HTTP 401
├── NotFound                no such job, pattern or artifact: HTTP 404
├── Conflict                not possible in the job's state, or an Idempotency-Key reused: HTTP 409
├── QuotaExceeded           a key's quota is used up: HTTP 429
└── Unavailable             a part of the stack does not answer: HTTP 503
"""


class SparsesmithError(Exception):
    """An error with a message for people, and where they apply the field, the value and the limit."""

    def __init__(self, message: str, *, field: str | None = None, value: object = None, limit: object = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.value = None if value is None else str(value)
        self.limit = None if limit is None else str(limit)


class InvalidInput(SparsesmithError):
    """The request is wrong and will be wrong again."""


class InvalidMatrix(InvalidInput):
    """Indices, shape or file do not describe a sparse matrix."""


class InvalidProgram(InvalidInput):
    """A kernel program breaks the contract of docs/kernel-programs.md."""


class InvalidOption(InvalidInput):
    """An option has an unknown or out-of-range value."""


class InvalidReport(InvalidInput):
    """A report that cannot be read, is not signed, or was changed since."""


class LimitExceeded(SparsesmithError):
    """Larger than a setting allows."""


class Unauthorized(SparsesmithError):
    """The server asks for a key, and none came that opens it. Says no more: neither which keys there are nor why."""


class NotFound(SparsesmithError):
    """Nothing has that name."""


class Conflict(SparsesmithError):
    """The state of a job does not allow it."""


class QuotaExceeded(SparsesmithError):
    """A key's quota is used up."""

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        value: object = None,
        limit: object = None,
        retry_after_s: int | None = None,
    ) -> None:
        """`retry_after_s`: when there is some again."""
        super().__init__(message, field=field, value=value, limit=limit)
        self.retry_after_s = retry_after_s


class Unavailable(SparsesmithError):
    """A part of the stack does not answer; trying later may help."""
