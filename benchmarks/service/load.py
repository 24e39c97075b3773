"""What the soak's clients send and see: jobs under idempotency keys, asked for until somebody says which they are."""

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

CANCELLED_SHARE = 0.1
SAMPLED_SHARE = 0.03
"""Of the jobs: policy samples, which take long on a CPU."""
ENDED = ("finished", "graded", "failed", "cancelled")
LAST_WAIT_S = 600
PAUSE_S = 0.5
LONGEST_PAUSE_S = 5.0
"""Before a client that was asked to come again does so."""


@dataclass
class Job:
    """An accepted job, as its client knows it."""

    job_id: str
    is_cancelled: bool = False
    """We were told so: 204."""
    end: dict[str, Any] | None = None
    """Its status when it was first seen to have ended."""


@dataclass
class Load:
    """What the clients saw; shared by their threads."""

    url: str
    jobs: dict[str, Job] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    unreachable: int = 0
    without_retry_after: int = 0
    """Answers 503 that do not say when to come again."""
    last_wait_s: float = LAST_WAIT_S
    """After the load: for words on requests that nobody answered, and for the next job to end."""
    deeds: Counter[str] = field(default_factory=Counter)
    """Of clients that do not behave."""
    stop: threading.Event = field(default_factory=threading.Event)
    _counting: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, client: httpx.Client, method: str, path: str, **options: Any) -> httpx.Response | None:
        """None where nobody answered."""
        try:
            response = client.request(method, self.url + path, timeout=60, **options)
        except httpx.TransportError:
            with self._counting:
                self.unreachable += 1
            time.sleep(PAUSE_S)
            return None
        with self._counting:
            self.statuses[response.status_code] += 1
            self.without_retry_after += response.status_code == 503 and retry_after_s(response.headers) is None
        return response

    def one_client(self, seed: int) -> None:
        """Posts, now and then cancels, and waits for a while."""
        chosen = random.Random(seed)
        with httpx.Client() as client:
            while not self.stop.is_set():
                job = self.accepted(client, f"soak-{seed}-{chosen.getrandbits(64)}", json=small_request(chosen))
                if job is None:
                    continue
                if chosen.random() < CANCELLED_SHARE:
                    self.cancel(client, job)
                self.ask(client, "GET", f"/v1/kernels/{job.job_id}")
                time.sleep(chosen.uniform(0, 2 * PAUSE_S))

    def accepted(
        self, client: httpx.Client, key: str, *, headers: Mapping[str, str] | None = None, **body: Any
    ) -> Job | None:
        """Asks under one key until told a job. Once the load is over it asks on only where an earlier request was not
        answered, so that there may be a job. None where nobody would say in the end, or all said to come again."""
        sent = {"Idempotency-Key": key, **(headers or {})}
        deadline: float | None = None
        is_open = False
        while deadline is None or (is_open and time.monotonic() < deadline):
            response = self.ask(client, "POST", "/v1/kernels", headers=sent, **body)
            if response is not None and response.status_code == 202:
                job = Job(response.json()["job_id"])
                self.jobs[job.job_id] = job
                return job
            is_open = is_open or response is None
            asked_s = None if response is None else retry_after_s(response.headers)
            self.stop.wait(min(asked_s or PAUSE_S, LONGEST_PAUSE_S))
            if self.stop.is_set():
                deadline = deadline or time.monotonic() + self.last_wait_s
                time.sleep(PAUSE_S)
        return None

    def cancel(self, client: httpx.Client, job: Job) -> None:
        response = self.ask(client, "DELETE", f"/v1/kernels/{job.job_id}")
        job.is_cancelled = response is not None and response.status_code == 204

    def count(self, deed: str) -> None:
        with self._counting:
            self.deeds[deed] += 1

    def watch_ends(self) -> None:
        """Of jobs, while the load goes on: an answer that was given once must stay."""
        with httpx.Client() as client:
            while not self.stop.wait(PAUSE_S):
                for job in self.open_jobs():
                    if not self.stop.is_set():
                        self._look(client, job)

    def wait_for_ends(self, most_s: float = math.inf) -> None:
        """Of all jobs, for as long as some end within `last_wait_s`, and no longer than `most_s`."""
        deadline, over = time.monotonic() + self.last_wait_s, time.monotonic() + most_s
        with httpx.Client() as client:
            while (open_jobs := self.open_jobs()) and time.monotonic() < min(deadline, over):
                for job in open_jobs:
                    if self._look(client, job):
                        deadline = time.monotonic() + self.last_wait_s
                time.sleep(PAUSE_S)

    def open_jobs(self) -> list[Job]:
        """Those that were not seen to end."""
        return [job for job in [*self.jobs.values()] if job.end is None]

    def _look(self, client: httpx.Client, job: Job) -> bool:
        """Whether it has ended."""
        response = self.ask(client, "GET", f"/v1/kernels/{job.job_id}")
        if response is None or response.status_code != 200:
            return False
        status = response.json()
        if status["status"]["state"] not in ENDED:
            return False
        job.end = status
        return True

    def listed(self) -> set[str]:
        """Ids of all jobs that the service knows."""
        found: set[str] = set()
        before: dict[str, str] = {}
        with httpx.Client() as client:
            while True:
                page = client.get(f"{self.url}/v1/kernels", params={"limit": 200, **before}, timeout=60).json()
                found |= {each["job_id"] for each in page["jobs"]}
                if page["next_before"] is None:
                    return found
                before = {"before": page["next_before"]}


def small_request(chosen: random.Random) -> dict[str, Any]:
    """A matrix that nobody sent before, and two candidates."""
    matrix = small_matrix(chosen)
    search = "sample" if chosen.random() < SAMPLED_SHARE else "families"
    return {"matrix": matrix, "search": search, "budget": {"candidates": 2, "seconds": 120}}


def small_matrix(chosen: random.Random) -> dict[str, Any]:
    """Some tens of rows, by chance."""
    size = chosen.randrange(20, 60)
    entries = sorted({(chosen.randrange(size), chosen.randrange(size)) for _ in range(4 * size)})
    return {
        "num_rows": size,
        "num_cols": size,
        "row_indices": [row for row, _ in entries],
        "col_indices": [col for _, col in entries],
    }


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """As an answer says it, in seconds; None: it does not."""
    said = headers.get("Retry-After", "")
    return float(said) if said.isdecimal() else None
