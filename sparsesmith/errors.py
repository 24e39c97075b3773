"""Every error a user can meet.

SparsesmithError
├── InvalidInput            the request is wrong: HTTP 422
│   ├── InvalidMatrix       indices, shapes or a matrix file
│   ├── InvalidProgram      a kernel program outside the contract
│   └── InvalidOption       an unknown or out-of-range option
├── LimitExceeded           larger than a setting allows: HTTP 413
├── NotFound                no such job, pattern or artifact: HTTP 404
├── Conflict                not possible in the job's state, or an Idempotency-Key reused: HTTP 409
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


class LimitExceeded(SparsesmithError):
    """Larger than a setting allows."""


class NotFound(SparsesmithError):
    """Nothing has that name."""


class Conflict(SparsesmithError):
    """The state of a job does not allow it."""


class Unavailable(SparsesmithError):
    """A part of the stack does not answer; trying later may help."""
