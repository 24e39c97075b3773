"""Two users, one evaluator on the interpreter, a real Valkey: nobody waits for all of another's search."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from services.generator.channels import Channels
from services.generator.generation import generate_kernels
from services.generator.gpus import Gpus
from services.generator.search import Sources
from services.generator.search.evaluations import QueuedEvaluations
from services.generator.search.grading import GradingLimits
from services.generator.search.kernel_cache import TunedKernelCache
from services.generator.search.trials import Trials
from services.generator.task import TuningTask
from services.generator.tools import Tools
from sparsesmith.errors import LimitExceeded
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.api import KernelReport, Running
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import Candidate, UserWritten
from tests.evaluator.misbehaving_device import program_text
from tests.generator.orders import make_order, make_pattern, make_workload

ROOT = Path(__file__).parents[2]


@contextmanager
def evaluator(address: str) -> Iterator[None]:
    environment = {
        **os.environ,
        "SPARSESMITH_REDIS_URL": address,
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "proto"))),
    }
    process = subprocess.Popen([sys.executable, "-m", "services.evaluator"], cwd=ROOT, env=environment)
    try:
        yield
    finally:
        process.terminate()
        process.wait(60)


class Watched(QueuedEvaluations):
    """Notes whose batches came back, in their order."""

    ended: list[str]

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        report = await super().grade(job)
        self.ended.append(job.job_id.partition(".")[0])
        return report


@contextmanager
def tools(address: str) -> Iterator[tuple[Tools, Watched]]:
    channels = Channels(address)
    evaluations = Watched(channels.evaluations, 8, lambda report: None)
    evaluations.ended = []
    try:
        limits = GradingLimits(batches_in_flight=2, first_grade_patience_s=120)
        cache = TunedKernelCache(channels.tuned_kernels, 0)
        yield (
            Tools(Sources(None, 16, 16), evaluations, limits, cache, Trials(channels.candidates), Gpus(channels.gpus)),
            evaluations,
        )
    finally:
        evaluations.close()


def make_task(name: str, address: str, size: int, **budget: float) -> TuningTask:
    density = min(0.2, 20 / size)
    pattern = pattern_from_scipy(sp.random(size, size, density, format="csr", rng=np.random.default_rng(1)))
    Channels(address).patterns.put(pattern)
    order = make_order(pattern, search="families", **budget)  # type: ignore[arg-type]
    return TuningTask(job_id=name, run_id=f"{name}.r", order=order, problem=Problem(order.workload, pattern))


async def unheard(running: Running) -> None:
    pass


@pytest.mark.timeout(900)
def test_a_small_search_waits_for_few_batches_of_a_large_one_which_goes_on(redis_url: str) -> None:
    async def both(tools: Tools, evaluations: Watched) -> tuple[KernelReport, int]:
        large = asyncio.create_task(
            generate_kernels(make_task("large", redis_url, 800, candidates=400, seconds=800), tools, unheard)
        )
        while not evaluations.ended and not large.done():
            await asyncio.sleep(0.05)
        before = len(evaluations.ended)
        small = await generate_kernels(make_task("small", redis_url, 30, candidates=16, seconds=240), tools, unheard)
        assert not large.done(), "the large one is still at it"
        turns = evaluations.ended[before:].count("large")
        until = len(evaluations.ended)
        while "large" not in evaluations.ended[until:] and not large.done():
            await asyncio.sleep(0.05)
        assert "large" in evaluations.ended[until:]
        large.cancel()
        await asyncio.wait([large])
        return small, turns

    with evaluator(redis_url), tools(redis_url) as (given, evaluations):
        small, turns = asyncio.run(both(given, evaluations))
    assert small.search.num_candidates == 16
    num_batches = evaluations.ended.count("small")
    assert turns <= num_batches + 1, "one for each batch of its own, and the one that was under way"


def test_a_matrix_that_is_too_much_for_its_budget_gives_the_evaluator_back_and_says_so(redis_url: str) -> None:
    """82 bytes of JSON: 9,900,000 rows and one nonzero."""

    many_rows = pattern_from_scipy(sp.csr_array(([1.0], ([5], [5])), shape=(9_900_000, 9_900_000)))
    channels = Channels(redis_url)
    channels.patterns.put(many_rows)
    candidate = Candidate(candidate_id="c", program=program_text("right"), origin=UserWritten())

    def job(name: str, pattern: Pattern, budget_s: float) -> EvaluationJob:
        return EvaluationJob(job_id=name, workload=make_workload(pattern), candidates=(candidate,), budget_s=budget_s)

    small = make_pattern()
    channels.patterns.put(small)
    with evaluator(redis_url):
        channels.evaluations.submit(job("warm", small, 120))
        assert channels.evaluations.wait("warm", 200) is not None
        began = time.monotonic()
        channels.evaluations.submit(job("big", many_rows, 5))
        channels.evaluations.submit(job("next", small, 120))
        with pytest.raises(LimitExceeded, match=r"the budget of 5 s was spent before anything was graded, in stage"):
            channels.evaluations.wait("big", 200)
        assert time.monotonic() - began < 60  # seconds, of the minutes that its stages would take
        assert channels.evaluations.wait("next", 200) is not None
