"""Large arrays reach another process in memory that both see, small ones through the pipe: equal, and its own."""

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

from services.evaluator.confinement.profile import Profile, available, confine
from services.evaluator.isolation import parcels
from sparsesmith.matrix.pattern import Pattern

SMALL, LARGE = 100, parcels.LEAST_BYTES


def make_pattern(nnz: int) -> Pattern:
    return Pattern(1, nnz, np.array([0, nnz], np.int32), np.arange(nnz, dtype=np.int32))


def num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _answer(connection: Connection, is_confined: bool) -> None:
    """Spoils what it got, then says what that was."""
    if is_confined:
        confine(Profile())
    while True:
        try:
            pattern = parcels.receive(connection)
        except EOFError:
            return
        told = (pattern.nnz, int(pattern.col_indices.sum(dtype=np.int64)), pattern.row_offsets.tolist())
        pattern.col_indices[:] = -1
        connection.send((told, int(pattern.col_indices.max()), num_open_files()))


@pytest.fixture(params=[False, True], ids=["free", "confined"])
def receiver(request: pytest.FixtureRequest) -> Iterator[tuple[Connection, int]]:
    if request.param and not available().is_whole:
        pytest.skip("this kernel cannot confine a process")
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_answer, args=(theirs, request.param), daemon=True)
    process.start()
    theirs.close()
    yield ours, process.pid or 0
    ours.close()
    process.join(10)


@pytest.mark.parametrize("nnz", [SMALL, LARGE])
def test_what_arrives_is_equal_and_the_receiver_s_own(receiver: tuple[Connection, int], nnz: int) -> None:
    connection, pid = receiver
    pattern = make_pattern(nnz)
    seen = []
    for _ in range(2):
        parcels.send(connection, pattern, pid)
        told, spoiled, num_open = connection.recv()
        assert told == (nnz, nnz * (nnz - 1) // 2, [0, nnz])
        assert spoiled == -1
        seen.append(num_open)
    assert pattern.col_indices[-1] == nnz - 1
    assert seen[0] == seen[1], "a descriptor is left open"


def test_large_arrays_do_not_go_through_the_pipe() -> None:
    ours, theirs = multiprocessing.Pipe()
    before = num_open_files()
    # Nobody reads: a pipe holds less than this, and a write would wait.
    parcels.send(ours, make_pattern(LARGE), os.getpid())
    assert num_open_files() == before
    pattern = parcels.receive(theirs)
    np.testing.assert_array_equal(pattern.col_indices, np.arange(LARGE))


def test_without_files_of_memory_everything_goes_through_the_pipe(
    receiver: tuple[Connection, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    connection, pid = receiver
    parcels.send(connection, make_pattern(LARGE), pid)
    assert connection.recv()[0] == (LARGE, LARGE * (LARGE - 1) // 2, [0, LARGE])
