"""What a kernel computes, as a thing: its operands, its sizes, its first programs."""

from collections.abc import Mapping
from typing import Protocol

from sparsesmith.operations.operand import Operand

RESERVED_OPERATION_IDS = 32
"""Ids that a policy keeps room for: a new operation never makes shipped weights unloadable."""


class Operation(Protocol):
    """One operation on a stored sparse matrix A. Implementations are frozen, in a folder of the operation's name."""

    @property
    def name(self) -> str:
        """As requests spell it: lower-case letters, digits and `_`."""
        ...

    @property
    def version(self) -> int:
        """Raised when the same request would mean something else."""
        ...

    @property
    def header_id(self) -> int:
        """Of the operation in prompts: handed out once and for all, below RESERVED_OPERATION_IDS."""
        ...

    @property
    def formula(self) -> str:
        """For prompts, reports, docs and headers: `y = A x`. `{name}` stands for a size of that name."""
        ...

    @property
    def axes(self) -> tuple[str, ...]:
        """Sizes that a request names beside its matrix, of those the wire knows (`num_dense_cols`)."""
        ...

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Behind the head (num_rows, num_cols, nnz) and the format's arguments, in order."""
        ...

    @property
    def programs(self) -> Mapping[str, str]:
        """The programs that everybody writes first, by name: kernel programs with `T` for the element type.

        The first is what a user gets without choosing.
        """
        ...

    @property
    def naive(self) -> str:
        """The name, among the programs, of the plainest: one thread an output element."""
        ...


def operands_with_role(operation: Operation, *roles: str) -> tuple[Operand, ...]:
    """In order."""
    return tuple(operand for operand in operation.operands if operand.role in roles)
