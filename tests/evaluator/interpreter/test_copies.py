"""Asynchronous copies are pending until their thread waits for them."""

from collections.abc import Callable

import numpy as np
import pytest

from services.evaluator.interpreter import Buffer, LaunchReport, nothing_written

RUN = Callable[..., LaunchReport]
HEAD = """#include <cuda_pipeline.h>
extern "C" __global__ void k(const float* x, float* y) {
    __shared__ alignas(16) float tile[256]; int t = threadIdx.x;
"""
X = np.arange(1, 257, dtype=np.float32)


def run_body(run: RUN, body: str, threads: int = 64) -> tuple[LaunchReport, np.ndarray]:
    """The report and y, of as many floats as there are threads."""
    y = np.zeros(threads, np.float32)
    return run(f"{HEAD}{body}\n}}", 1, threads, Buffer("x", X.copy(), False), Buffer("y", y, True)), y


@pytest.mark.parametrize(
    "missing",
    [
        "",
        "__pipeline_commit();",
        "__pipeline_commit(); __pipeline_wait_prior(1);",
        "__pipeline_wait_prior(0);",
    ],
    ids=["neither committed nor waited", "not waited", "waited for all but the last", "waited without a commit"],
)
def test_a_copy_that_was_not_waited_for_has_not_arrived(missing: str, run: RUN) -> None:
    report, _ = run_body(run, f"__pipeline_memcpy_async(tile + t, x + t, 4); {missing} y[t] = tile[t];")
    assert report.finding is not None
    assert report.finding.kind == "uninitialised_shared"


def test_what_was_there_before_is_read_until_the_copy_is_waited_for(run: RUN) -> None:
    body = """tile[t] = -1; __pipeline_memcpy_async(tile + t, x + t, 4); __pipeline_commit();
    y[t] = tile[t]; __pipeline_wait_prior(0); y[t] = 1000 * y[t] + tile[t];"""
    report, y = run_body(run, body)
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, X[:64] - 1000)


def test_all_but_the_latest_groups_arrive(run: RUN) -> None:
    body = """for (int i = 0; i < 3; i++) {
        __pipeline_memcpy_async(tile + 64 * i + t, x + 64 * i + t, 4); __pipeline_commit(); }
    __pipeline_wait_prior(2); y[t] = tile[t];
    __pipeline_wait_prior(1); y[t] += tile[64 + t];
    __pipeline_wait_prior(0); y[t] += tile[128 + t];"""
    report, y = run_body(run, body)
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, X[:64] + X[64:128] + X[128:192])


def test_a_copy_of_what_nothing_has_written_is_found(run: RUN) -> None:
    source = """#include <cuda_pipeline.h>
    extern "C" __global__ void k(float* y) {
        __shared__ alignas(16) float tile[64]; int t = threadIdx.x;
        __pipeline_memcpy_async(tile + t, y + t, 4); __pipeline_commit(); __pipeline_wait_prior(0);
        y[t] = tile[t] == 3 ? 3 : 1;
    }"""
    y = np.zeros(64, np.float32)
    report = run(source, 1, 64, Buffer("y", y, True, nothing_written(y)))
    assert report.finding is not None
    assert report.finding.kind == "uninitialised_read"


def test_a_copy_of_what_another_block_writes_is_a_race(run: RUN) -> None:
    source = """#include <cuda_pipeline.h>
    extern "C" __global__ void k(float* y) {
        __shared__ alignas(16) float tile[64]; int t = threadIdx.x;
        if (blockIdx.x == 0) { y[t] = 1; return; }
        __pipeline_memcpy_async(tile + t, y + t, 4); __pipeline_commit(); __pipeline_wait_prior(0);
        y[64 + t] = tile[t];
    }"""
    y = np.zeros(128, np.float32)
    report = run(source, 2, 64, Buffer("y", y, True, nothing_written(y)))
    assert report.finding is not None
    assert report.finding.kind == "race"


def test_lanes_wait_each_for_their_own_groups(run: RUN) -> None:
    body = """__pipeline_memcpy_async(tile + t, x + t, 4); __pipeline_commit();
    if (t % 2) { __pipeline_memcpy_async(tile + 64 + t, x + 64 + t, 4); __pipeline_commit(); __pipeline_wait_prior(1); }
    else __pipeline_wait_prior(0);
    y[t] = tile[t];"""
    report, y = run_body(run, body)
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, X[:64])


def test_another_threads_copy_needs_a_barrier_behind_the_wait(run: RUN) -> None:
    copied = "__pipeline_memcpy_async(tile + t, x + t, 4); __pipeline_commit(); __pipeline_wait_prior(0);"
    report, _ = run_body(run, f"{copied} if (t >= 32) y[t] = tile[t - 32];")
    assert report.finding is not None
    assert report.finding.kind == "race"
    report, y = run_body(run, f"{copied} __syncthreads(); y[t] = tile[63 - t];")
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, X[63::-1])


def test_more_copies_than_can_be_pending_arrive_all_the_same(run: RUN) -> None:
    body = """float sum = 0;
    for (int i = 0; i < 100; i++) __pipeline_memcpy_async(tile + t + 64 * (i % 4), x + (t + i) % 256, 4);
    __pipeline_commit(); __pipeline_wait_prior(0);
    for (int i = 0; i < 4; i++) sum += tile[t + 64 * i];
    y[t] = sum;"""
    report, y = run_body(run, body)
    assert report.finding is None, report.finding
    np.testing.assert_array_equal(y, sum(X[(np.arange(64) + i) % 256] for i in range(96, 100)))


def test_copies_of_one_block_are_not_pending_in_the_next(run: RUN) -> None:
    source = """#include <cuda_pipeline.h>
    extern "C" __global__ void k(const float* x, float* y) {
        __shared__ float tile[32]; int t = threadIdx.x;
        if (blockIdx.x == 0) { __pipeline_memcpy_async(tile + t, x + t, 4); __pipeline_commit(); return; }
        tile[t] = 5; __pipeline_commit(); __pipeline_wait_prior(0); y[t] = tile[t];
    }"""
    y = np.zeros(32, np.float32)
    report = run(source, 2, 32, Buffer("x", X.copy(), False), Buffer("y", y, True))
    assert report.finding is None, report.finding
    assert set(y) == {5.0}
