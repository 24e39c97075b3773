"""What the soak's clients send and see: jobs under idempotency keys, asked for until somebody says which they are."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

CANCELLED_SHARE = 0.1
SAMPLED_SHARE = 0.03
"""Of the jobs: policy samples, which take long on a CPU."""
ENDED = ("finished", "graded", "failed", "cancelled")
LAST_WAIT_S = 600
PAUSE_S = 0.5


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

    def accepted(self, client: httpx.Client, key: str, **body: Any) -> Job | None:
        """Asks under one key until told a job, also once the load is over; None where nobody would say in the end."""
        deadline = time.monotonic() + LAST_WAIT_S
        while time.monotonic() < deadline:
            response = self.ask(client, "POST", "/v1/kernels", headers={"Idempotency-Key": key}, **body)
            if response is not None and response.status_code == 202:
                job = Job(response.json()["job_id"])
                self.jobs[job.job_id] = job
                return job
            time.sleep(PAUSE_S)
        return None

    def cancel(self, client: httpx.Client, job: Job) -> None:
        response = self.ask(client, "DELETE", f"/v1/kernels/{job.job_id}")
        job.is_cancelled = response is not None and response.status_code == 204

    def count(self, deed: str) -> None:
        with self._counting:
            self.deeds[deed] += 1

    def wait_for_ends(self) -> None:
        """Of all jobs, for as long as some end within `LAST_WAIT_S`."""
        deadline = time.monotonic() + LAST_WAIT_S
        with httpx.Client() as client:
            while (open_jobs := [each for each in self.jobs.values() if each.end is None]) and (
                time.monotonic() < deadline
            ):
                for job in open_jobs:
                    response = self.ask(client, "GET", f"/v1/kernels/{job.job_id}")
                    if response is not None and response.status_code == 200:
                        status = response.json()
                        if status["status"]["state"] in ENDED:
                            job.end, deadline = status, time.monotonic() + LAST_WAIT_S
                time.sleep(PAUSE_S)

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
    size = chosen.randrange(20, 60)
    entries = sorted({(chosen.randrange(size), chosen.randrange(size)) for _ in range(4 * size)})
    matrix = {
        "num_rows": size,
        "num_cols": size,
        "row_indices": [row for row, _ in entries],
        "col_indices": [col for _, col in entries],
    }
    search = "sample" if chosen.random() < SAMPLED_SHARE else "families"
    return {"matrix": matrix, "search": search, "budget": {"candidates": 2, "seconds": 120}}
