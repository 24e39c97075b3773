"""What the soak calls wrong, and whom it kills; the load itself against a live generator."""

import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import httpx
import pytest

from benchmarks.report.evidence import services
from benchmarks.service.calm import CalmAnswers, difference, told
from benchmarks.service.killing import SLOW, age_s, memory_bytes, state_of, victim
from benchmarks.service.load import Job, Load, retry_after_s
from benchmarks.service.odd_clients import slow, uploading, vanishing
from benchmarks.service.slopes import slope_of
from benchmarks.service.soak import Look, complaints, last_lines, looked_at, under_load
from benchmarks.service.soak_runs import read_runs, slow_kills, totals, written
from sparsesmith.errors import InvalidInput
from sparsesmith.transport.connection import Redis
from sparsesmith_proto.evaluation import EvaluationReport
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import make_passed, make_timing

KINDS = ["engine", "evaluator-0", "evaluator-1", "generator", "trainer", "valkey"]


DEEDS = {
    "slow client ended by the server",
    "left in the middle of a body",
    "left before the answer",
    "left in the middle of events",
    "large uploads",
}


def until(happened: Callable[[], object]) -> None:
    """Nobody is killed."""
    deadline = time.monotonic() + 60
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.05)


def make_status(state: str = "finished", **answer: Any) -> dict[str, Any]:
    return {"job_id": "j", "status": {"state": state, **answer}}


def storm(seed: int, kills: int, slow: int, living: list[str] = KINDS) -> list[str]:
    """Whom a storm kills, where those who live always live."""
    chosen, killed = random.Random(seed), list[str]()
    for number in range(kills):
        kind = victim(living, KINDS, Counter(killed), slow, number / kills, chosen)
        assert kind is not None
        killed.append(kind)
    return killed


@pytest.mark.parametrize("seed", range(5))
def test_each_kind_is_killed_and_those_that_return_slowly_as_often_as_told_spread_over_the_time(seed: int) -> None:
    killed = storm(seed, kills=100, slow=4)
    assert {*killed} == {*KINDS}
    assert [killed.count(kind) for kind in SLOW] == [4, 4]
    engines = [number for number, kind in enumerate(killed) if kind == "engine"]
    assert all(later - earlier > 15 for earlier, later in pairwise(engines))


def test_who_was_not_killed_yet_comes_first_and_who_does_not_live_is_left_out() -> None:
    assert {*storm(0, kills=4, slow=0)} == {"evaluator-0", "evaluator-1", "trainer", "valkey"}
    assert {*storm(0, kills=9, slow=3, living=["trainer", "valkey"])} == {"trainer", "valkey"}
    assert victim(["generator"], KINDS, {}, 0, 0.5, random.Random(0)) is None


def test_a_process_that_is_gone_or_a_zombie_is_not_one_to_kill() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 30
    while state_of(child.pid) != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (state_of(child.pid), memory_bytes(child.pid)) == ("Z", 0)
    child.wait()
    assert (state_of(child.pid), age_s(child.pid), memory_bytes(child.pid)) == ("", 0.0, 0)
    assert age_s(os.getpid()) > 0.0 < memory_bytes(os.getpid())


def test_a_job_that_ended_once_and_stayed_so_is_right() -> None:
    end = make_status(report=1)
    assert complaints(Job("j", end=end), Look(make_status(report=1), ("finished",))) == []


@pytest.mark.parametrize(
    ("job", "look", "said"),
    [
        (Job("j"), None, "lost"),
        (
            Job("j", end=make_status()),
            Look(make_status(), ("finished", "finished")),
            "its events say finished, finished",
        ),
        (Job("j", end=make_status()), Look(make_status(), ("finished", "cancelled")), "finished, cancelled"),
        (Job("j", end=make_status()), Look(make_status(), ()), "its events say nothing"),
        (Job("j", end=make_status(report=1)), Look(make_status(report=2), ("finished",)), "its answer changed"),
        (Job("j", True, make_status()), Look(make_status(), ("finished",)), "told that it is cancelled"),
    ],
)
def test_a_job_without_an_end_with_two_or_with_another_answer_is_told(job: Job, look: Look | None, said: str) -> None:
    (told,) = complaints(job, look)
    assert said in told


def test_clients_know_each_job_that_the_service_knows_and_how_it_ended(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(seconds=0.05)) as http:
        url = str(http.base_url).rstrip("/")
        load = Load(url)
        under_load(
            load, [partial(load.one_client, seed) for seed in range(3)], lambda: until(lambda: len(load.jobs) > 5)
        )
        load.wait_for_ends()
        assert load.listed() == load.jobs.keys() != set()
        assert all(complaints(job, looked_at(url, job.job_id)) == [] for job in load.jobs.values())
    assert load.unreachable == 0


def test_clients_that_do_not_behave_harm_no_job_and_make_none_twice(redis_url: str) -> None:
    with live_service(redis_url, Evaluators(seconds=0.05), body_timeout_s=3) as http:
        load = Load(str(http.base_url).rstrip("/"))
        odd = [partial(slow, load, 0), partial(vanishing, load, 0), partial(uploading, load, 0, 20_000)]
        under_load(load, [*odd, partial(load.one_client, 0)], lambda: until(lambda: load.deeds.keys() >= DEEDS))
        load.wait_for_ends()
        assert load.listed() == load.jobs.keys() != set()
        assert all(complaints(job, looked_at(load.url, job.job_id)) == [] for job in load.jobs.values())
    assert (load.unreachable, load.without_retry_after) == (0, 0)
    assert load.deeds.keys() == DEEDS


def test_an_end_that_was_written_twice_is_found(redis_url: str, redis_connection: Redis) -> None:
    with live_service(redis_url, Evaluators()) as http:
        load = Load(str(http.base_url).rstrip("/"))
        under_load(load, [partial(load.one_client, 1)], lambda: until(lambda: load.jobs))
        load.wait_for_ends()
        job = next(each for each in load.jobs.values() if each.end is not None)
        events = f"sparsesmith:job:{job.job_id}:events"
        (_, last), *_ = redis_connection.xrevrange(events, count=1)
        redis_connection.xadd(events, last)
        (told,) = complaints(job, looked_at(load.url, job.job_id))
    assert "its events say" in told


def test_of_each_traceback_in_a_log_the_exception_is_told() -> None:
    log = """INFO: all is well
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    f()
    ~^^
ConnectionError: gone
INFO: on
(EngineCore pid=7) ERROR 11-22 06:43:48 [core.py:1] Traceback (most recent call last):
(EngineCore pid=7) ERROR 11-22 06:43:48 [core.py:1]   File "b.py", line 2, in f
(EngineCore pid=7) ERROR 11-22 06:43:48 [core.py:1] RuntimeError: cancelled
"""
    assert last_lines(log) == ["ConnectionError: gone", "RuntimeError: cancelled"]


def test_memory_that_grows_is_told_from_memory_that_only_wavers() -> None:
    minutes = [20 * number / 60 for number in range(40)]
    wavering = [(60 * minute, 500 + 30 * (number % 2)) for number, minute in enumerate(minutes)]
    growing = [(second, mib + 12 * second / 60) for second, mib in wavering]
    flat, slope = slope_of(wavering), slope_of(growing)
    assert flat is not None
    assert flat["is_flat"] is True
    assert slope is not None
    assert (slope["is_flat"], slope["mib_a_minute"]) == (False, pytest.approx(12, abs=3))


def test_growth_at_the_start_is_left_out_and_few_samples_say_nothing() -> None:
    starting = [(20.0 * number, min(500.0, 100.0 * number)) for number in range(30)]
    assert slope_of(starting) == {"mib_a_minute": 0.0, "standard_error": 0.0, "is_flat": True}
    assert slope_of(starting[:7]) is None
    assert slope_of([]) is None


@pytest.mark.parametrize(
    ("headers", "seconds"), [({"Retry-After": "5"}, 5.0), ({}, None), ({"Retry-After": "soon"}, None)]
)
def test_when_to_come_again_is_read_or_missed(headers: Mapping[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_503_that_does_not_say_when_to_come_again_is_counted() -> None:
    said = iter([{"Retry-After": "5"}, {}])
    server = httpx.MockTransport(lambda request: httpx.Response(503, headers=next(said)))
    load = Load("http://service")
    with httpx.Client(transport=server) as client:
        load.ask(client, "GET", "/")
        load.ask(client, "GET", "/")
    assert (load.statuses, load.without_retry_after) == ({503: 2}, 1)


@pytest.mark.parametrize(("answers", "asked"), [([503, 503, 202], 1), ([None, 503, 202], 3)])
def test_once_the_load_is_over_only_requests_that_may_have_become_a_job_are_asked_again(
    answers: list[int | None], asked: int
) -> None:
    """One that nobody answered may have been taken; one that was told to come again was not."""
    left = iter(answers)
    requests = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request.headers["Idempotency-Key"])
        status = next(left)
        if status is None:
            raise httpx.ConnectError("cut", request=request)
        return httpx.Response(status, json={"job_id": "j"}, headers={"Retry-After": "0"})

    load = Load("http://service", last_wait_s=30)
    load.stop.set()
    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        job = load.accepted(client, "key", json={})
    assert requests == ["key"] * asked
    assert (job is not None) is (asked == 3)


def make_run(**changes: Any) -> dict[str, Any]:
    run: dict[str, Any] = {
        "date": "2026-01-01",
        "commit": "abc",
        "machine": "2 cores",
        "command": "python -m benchmarks.service.soak",
        "kills": {"engine": 1, "evaluator-0": 3, "evaluator-1": 4, "generator": 2, "valkey": 5},
        "jobs": 10,
        "ended": {"cancelled": 1, "finished": 9},
        "ended_once": 10,
        "same_after_the_end": 10,
        "failures": {},
        "statuses": {"200": 20, "503": 7},
        "unreachable": 3,
        "odd_clients": {"large uploads": 6},
        "tracebacks_in_logs": {},
    }
    return run | changes


def test_runs_are_added_up_and_one_alone_of_an_earlier_release_is_the_first(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    file.write_text(json.dumps({"kind": "soak", **make_run()}))
    before = read_runs(file)
    assert slow_kills(before) == 3
    calm = {"answers": 4, "asked_again_equal": 11, "unequal": 0, "failed": 1}
    new = make_run(calm=calm, without_retry_after=0, num_wrong=2)
    written(file, before, new)
    written(file, before, new)  # As it goes on: the run is there once.
    assert read_runs(file) == [*before, new]
    total = totals(read_runs(file))
    assert total["kills_by_kind"] == {"engine": 2, "evaluator": 14, "generator": 4, "valkey": 10}
    assert (total["kills"], total["jobs"], total["large_uploads"], total["asked_to_come_again"]) == (30, 20, 12, 14)
    assert (total["calm_equal"], total["wrong"], total["runs_with"]) == (11, 2, {"retry_after": 1, "calm": 1})


def test_another_file_is_no_place_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"kind": "memory"}')
    assert read_runs(tmp_path / "none.json") == []
    with pytest.raises(InvalidInput, match="no result of the soak"):
        read_runs(tmp_path / "other.json")


def test_the_report_tells_the_sum_and_each_run_with_its_slopes(tmp_path: Path) -> None:
    seconds = [20 * number for number in range(30)]
    growing = [500.0 + number for number in range(30)]
    flat, late = [500.0] * 29 + [None], [0.0] * 28 + [107.0, 215.0]
    wavering = [500.0 + 40 * (number % 2) for number in range(30)]
    mib = {
        "evaluator": wavering,
        "disk trainer": late,
        "engine": [700.0, *[None] * 29],
        "trainer": flat,
        "valkey": growing,
    }
    run = make_run(footprint={"sampled_s": seconds, "mib": mib}, phase="storm", storm_s=540.0, evaluators=2)
    written(tmp_path / "soak.json", [make_run()], run)
    text = "\n".join(services([json.loads((tmp_path / "soak.json").read_text())]))
    assert "- 2 runs, 30 processes killed with SIGKILL: engine 2, evaluator 14" in text
    assert "| trainer | 500 | 500 | 500 | 500 | 500 | +0.00 +- 0.00 | yes |" in text
    assert "| engine | 700 | 700 | 700 | 700 | 700 | - | - |" in text
    # What happens behind the kills is no slope, and what stays on disk is told of.
    assert "| disk trainer | 0 | 0 | 215 | 0 | 215 | +0.00 +- 0.00 | yes |" in text
    assert "- disk trainer: the newest checkpoints" in text
    assert "| valkey | 500 | 527 | 529 | 500 | 529 | +3.00 +- 0.00 | no |" in text
    assert "- valkey: 2970 KiB for each of the 10 jobs" in text
    assert "- trainer:" not in text
    assert re.search(r"\| evaluator \| 500 .* \| not told \|", text)
    assert "- evaluator: 7 kills of 2: one lives 154 s" in text
    assert text.count("Cut off in its storm.") == 1


def make_answer(**changes: Any) -> dict[str, Any]:
    timing = {"median_us": 3.5}
    best = {"candidate": {"program": "text", "candidate_id": "a-1"}, "outcome": {"timing": timing, "worst_error": 0.1}}
    answer = {"kind": "kernel", "best": best, "speedup_over_best": 2.0}
    report = {
        "answer": answer,
        "search": {"outcomes": {"passed": 6}, "seconds": 3.2},
        "baselines": {"routines": [{"routine": "csr", "timing": {"median_us": 7.0}}]},
    }
    return {"state": "finished", "report": report | changes}


def test_answers_are_the_same_where_only_names_errors_and_seconds_differ() -> None:
    calm, later = make_answer(), make_answer()
    later["report"]["answer"]["best"]["candidate"]["candidate_id"] = "b-7"
    later["report"]["answer"]["best"]["outcome"]["worst_error"] = 0.2
    later["report"]["search"]["seconds"] = 90
    assert told(calm) == told(later)
    other = make_answer(search={"outcomes": {"passed": 5, "crashed": 1}})
    assert difference(told(calm), told(other)) == "outcomes {'passed': 6} -> {'passed': 5, 'crashed': 1}"


class TimedByText(Evaluators):
    """What takes how long follows from the program: where all take alike, the first one to be graded wins."""

    def wait(self, job_id: str, timeout_s: float) -> EvaluationReport | None:
        report = super().wait(job_id, timeout_s)
        if report is None:
            return None
        timed = (
            each.model_copy(
                update={"outcome": make_passed(make_timing(5 + crc32(each.candidate.program.encode()) / 2**32))}
            )
            for each in report.evaluations
        )
        return report.model_copy(update={"evaluations": tuple(timed)})


def test_answers_of_a_calm_run_are_had_again_and_another_answer_is_told(redis_url: str) -> None:
    with live_service(redis_url, TimedByText(seconds=0.05)) as http:
        load = Load(str(http.base_url).rstrip("/"))
        calm = CalmAnswers(load, 2)
        calm.ask_calmly()
        clients: list[Callable[[], None]] = [partial(calm.ask_again, 0, 1), load.watch_ends]
        under_load(load, clients, lambda: until(lambda: len(calm.again) > 3))
        load.wait_for_ends()
    compared = calm.compared()
    assert (compared["unequal"], compared["failed"]) == ([], [])
    assert len(compared["equal"]) == len(calm.again) > 3
    calm.calm[0] = {**calm.calm[0], "time": -1.0}
    other = calm.compared()["unequal"]
    assert len(other) == sum(number == 0 for number, _ in calm.again)
    assert "time -1.0 -> " in other[0]
