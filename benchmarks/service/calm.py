"""Answers of a calm run, to be had again while processes are killed.

The interpreter's times are estimates, counted from what a program does: the same programs on the same matrix get the same
times. With one batch of candidates nothing else decides what is tried, as no candidate is proposed for what became of
another. So the answer must be the same to the last digit: which program wins or which routine stays, its time, what it
gains, how many candidates ended how. Inputs are drawn at random, so the error that was found is not compared; neither
are seconds.
"""

import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from benchmarks.service.load import ENDED, PAUSE_S, Load, small_matrix

CANDIDATES = 6
"""One batch."""
NO_CACHE = {"Cache-Control": "no-cache"}
"""What is kept of an earlier search is no search."""

Told = Mapping[str, Any]


@dataclass
class CalmAnswers:
    """Of a fixed set of requests, and what became of them in the storm."""

    load: Load
    count: int
    calm: dict[int, Told] = field(default_factory=dict)
    equal: int = 0
    unequal: list[str] = field(default_factory=list)
    without_answer: int = 0
    """Failed in the storm, where the load's jobs are told, too."""

    def ask_calmly(self) -> None:
        """Before anything is killed. Raises RuntimeError for one that has no answer then."""
        with httpx.Client() as client:
            for number in range(self.count):
                status = self._answered(client, number, 0, threading.Event())
                if status is None or status["state"] != "finished":
                    raise RuntimeError(f"calm job {number} ended without an answer: {status}")
                self.calm[number] = told(status)

    def ask_again(self, part: int, parts: int) -> None:
        """As long as the load goes on, one after the other; several threads have a part each."""
        again = 0
        with httpx.Client() as client:
            while not self.load.stop.is_set():
                again += 1
                for number in range(part, self.count, parts):
                    if not self.load.stop.is_set():
                        self._compare(number, self._answered(client, number, again, self.load.stop))

    def _compare(self, number: int, status: Told | None) -> None:
        if status is None:
            return
        if status["state"] != "finished":
            self.without_answer += 1
        elif (now := told(status)) == self.calm[number]:
            self.equal += 1
        else:
            self.unequal.append(f"calm job {number}: {difference(self.calm[number], now)}")

    def _answered(self, client: httpx.Client, number: int, again: int, stop: threading.Event) -> Told | None:
        """The end of a job; None: nobody took it, or the load was over first."""
        request = {
            "matrix": small_matrix(random.Random(f"calm {number}")),
            "search": "families",
            "budget": {"candidates": CANDIDATES, "seconds": 120},
        }
        job = self.load.accepted(client, f"calm-{number}-{again}", json=request, headers=NO_CACHE)
        if job is None:
            return None
        while not stop.is_set():
            response = self.load.ask(client, "GET", f"/v1/kernels/{job.job_id}")
            if response is not None and response.status_code == 200:
                status: Told = response.json()["status"]
                if status["state"] in ENDED:
                    return status
            time.sleep(PAUSE_S)
        return None


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
