"""What the library's routines take is timed once: by an evaluator, and by all that share its GPU."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import pytest

from services.evaluator.isolation.workbench import Workbench
from services.evaluator.known_routines import KnownRoutines
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.routine_times import RoutineTimes
from sparsesmith_proto.kernel import Baselines, BaselineTiming, DeviceDescription, Workload
from tests.evaluator.misbehaving_device import measured

DEVICE = DeviceDescription(
    kind="cuda",
    name="NVIDIA H200",
    architecture="sm_90",
    num_sms=132,
    copy_bandwidth_gbs=4300,
    versions={"cusparse": "12.9.4"},
)
SPMV, SPMM = (
    Workload(pattern="0" * 64, operation="spmv", element_type="float32", num_dense_cols=1),
    Workload(pattern="0" * 64, operation="spmm", element_type="float32", num_dense_cols=8),
)


@dataclass
class Bench:
    """Of a device whose routines take longer each time."""

    asked: int = field(default=0)

    def baselines(self) -> Baselines:
        self.asked += 1
        routine = BaselineTiming(routine="csr", timing=measured(self.asked), preparation_ms=0)
        return Baselines(default="csr", routines=(routine,))


def us(baselines: Baselines | None) -> float:
    assert baselines is not None
    return baselines.best_routine().timing.median_us


def asked(known: KnownRoutines, bench: Bench, workload: Workload = SPMV) -> float:
    return us(known.of(workload, cast(Workbench, bench)))


def test_a_workload_is_timed_once_until_it_is_forgotten() -> None:
    known, bench = KnownRoutines(most=1), Bench()
    assert [asked(known, bench), asked(known, bench)] == [1, 1]
    assert asked(known, bench, SPMM) == 2
    assert asked(known, bench) == 3


def test_evaluators_of_one_gpu_hold_kernels_against_the_same_times(redis_connection: Redis) -> None:
    bench = Bench()
    first, second = (KnownRoutines(others=RoutineTimes(redis_connection, "GPU-1", DEVICE)) for _ in range(2))
    assert [asked(first, bench), asked(second, bench)] == [1, 1]
    assert asked(second, bench, SPMM) == 2, "of another workload nothing was told"
    assert asked(first, bench, SPMM) == 2


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("GPU-2", DEVICE),
        ("GPU-1", DEVICE.model_copy(update={"versions": {"cusparse": "13.0"}})),
        ("GPU-1", DEVICE.model_copy(update={"name": "NVIDIA H100"})),
    ],
    ids=["another GPU", "another library", "another kind"],
)
def test_times_of_another_gpu_or_library_are_not_taken(
    redis_connection: Redis, gpu: str, device: DeviceDescription
) -> None:
    RoutineTimes(redis_connection, "GPU-1", DEVICE).agreed(SPMV, Bench().baselines())
    assert RoutineTimes(redis_connection, gpu, device).find(SPMV) is None
    again = DEVICE.model_copy(update={"copy_bandwidth_gbs": 4299})
    assert us(RoutineTimes(redis_connection, "GPU-1", again).find(SPMV)) == 1, "measured anew at each start"


def test_the_first_that_was_told_stays_and_is_forgotten_in_time(redis_connection: Redis) -> None:
    times, bench = RoutineTimes(redis_connection, "GPU-1", DEVICE), Bench()
    assert [us(times.agreed(SPMV, bench.baselines())) for _ in range(2)] == [1, 1], "two that time at the same time"
    assert us(times.find(SPMV)) == 1
    (key,) = redis_connection.keys("sparsesmith:routines:*")
    assert 3000 < redis_connection.ttl(key) <= 3600


def _damaged(connection: Redis) -> Redis:
    (key,) = connection.keys("sparsesmith:routines:*")
    connection.set(key, '{"default": "csr", "routines": []}')
    return connection


def _gone(connection: Redis) -> Redis:
    return connect("redis://127.0.0.1:1/0")


@pytest.mark.parametrize("lost", [_damaged, _gone])
def test_what_cannot_be_read_is_timed_here(
    redis_connection: Redis, lost: Callable[[Redis], Redis], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench()
    RoutineTimes(redis_connection, "GPU-1", DEVICE).agreed(SPMV, bench.baselines())
    with caplog.at_level(logging.WARNING):
        assert asked(KnownRoutines(others=RoutineTimes(lost(redis_connection), "GPU-1", DEVICE)), bench) == 2
    assert caplog.text.count("routines that others timed are not known") >= 1
