"""Answers of a calm run, to be had again while processes are killed.

The interpreter's times are estimates, counted from what a program does: the same programs on the same matrix get the same
times. With one batch of candidates nothing else decides what is tried, as no candidate is proposed for what became of
another. So the answer must be the same to the last digit: which program wins or which routine stays, its time, what it
gains, how many candidates ended how. Inputs are drawn at random, so the error that was found is not compared; neither
are seconds.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.service.load import PAUSE_S, Job, Load, small_matrix

CANDIDATES = 6
"""One batch."""
NO_CACHE = {"Cache-Control": "no-cache"}
"""What is kept of an earlier search is no search."""

Told = Mapping[str, Any]


@dataclass
class CalmAnswers:
    """Of a fixed set of requests, and the jobs that asked for them again."""

    load: Load
    count: int
    calm: dict[int, Told] = field(default_factory=dict)
    again: list[tuple[int, Job]] = field(default_factory=list)
    """Jobs of the storm with the number of their request; `load` sees them end."""

    def ask_calmly(self) -> None:
        """Before anything is killed. Raises RuntimeError for one that has no answer then."""
        with httpx.Client() as client:
            asked = {number: self._accepted(client, number, 0) for number in range(self.count)}
        self.load.wait_for_ends()
        for number, job in asked.items():
            status = None if job is None or job.end is None else job.end["status"]
            if status is None or status["state"] != "finished":
                raise RuntimeError(f"calm job {number} ended without an answer: {status}")
            self.calm[number] = told(status)

    def ask_again(self, part: int, parts: int) -> None:
        """As long as the load goes on, the next one when the one before has ended; several threads have a part each."""
        rounds = 0
        with httpx.Client() as client:
            while not self.load.stop.wait(PAUSE_S):
                rounds += 1
                for number in range(part, self.count, parts):
                    job = None if self.load.stop.is_set() else self._accepted(client, number, rounds)
                    if job is not None:
                        self.again.append((number, job))
                        self._wait(job)

    def compared(self) -> dict[str, list[str]]:
        """What became of those that have ended by now: `equal`, `unequal`, `failed`, with words on each."""
        found: dict[str, list[str]] = {"equal": [], "unequal": [], "failed": []}
        for number, job in [*self.again]:
            if job.end is None:
                continue
            status = job.end["status"]
            if status["state"] != "finished":
                found["failed"].append(f"calm job {number}: {status['state']}")
            elif (now := told(status)) == self.calm[number]:
                found["equal"].append(f"calm job {number}")
            else:
                found["unequal"].append(f"calm job {number}, {job.job_id}: {difference(self.calm[number], now)}")
        return found

    def _wait(self, job: Job) -> None:
        while job.end is None and not self.load.stop.wait(PAUSE_S):
            pass

    def _accepted(self, client: httpx.Client, number: int, rounds: int) -> Job | None:
        request = {
            "matrix": small_matrix(random.Random(f"calm {number}")),
            "search": "families",
            "budget": {"candidates": CANDIDATES, "seconds": 120},
        }
        return self.load.accepted(client, f"calm-{number}-{rounds}", json=request, headers=NO_CACHE)


def told(status: Told) -> Told:
    """What must be the same of an answer."""
    report = status["report"]
    answer = report["answer"]
    evaluation = answer["best"] if answer["kind"] == "kernel" else answer["closest"]
    return {
        "kind": answer["kind"],
        "routine": answer.get("routine"),
        "program": None if evaluation is None else evaluation["candidate"]["program"],
        "time": None if evaluation is None else evaluation["outcome"]["timing"]["median_us"],
        "speedup": answer.get("speedup_over_best"),
        "outcomes": report["search"]["outcomes"],
        "baselines": {each["routine"]: each["timing"]["median_us"] for each in report["baselines"]["routines"]},
    }


def difference(calm: Told, now: Told) -> str:
    """In words; programs are long."""
    names = [name for name in calm if calm[name] != now[name]]
    return ", ".join(name if name == "program" else f"{name} {calm[name]} -> {now[name]}" for name in names)
