"""Workloads that a policy does not write programs for: it is left out by name, and families serve them."""

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from services.generator.policy.engine import EngineOptions
from services.generator.policy.engine_host import EngineHost
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.sampling import PolicySampler, SamplingOptions
from services.generator.search import STRATEGIES, Batch, Sources, Standing
from services.generator.task import TuningTask
from sparsesmith.errors import Unavailable
from sparsesmith.operations import Problem
from sparsesmith.policy.description import load_description
from tests.generator.orders import make_order, make_pattern, make_task, make_workload
from tests.generator.tiny_policy import make_policy, write_policy


def idle_sampler(folder: PolicyFolder) -> PolicySampler:
    """A policy whose engine nobody starts."""
    host = EngineHost(EngineOptions(folder.language_model_dir(), max_context_tokens=1024), restart_s=1)
    return PolicySampler(host, folder.prompt_writer(), SamplingOptions("sm_90", 1.0, 16))


def short_task() -> TuningTask:
    pattern = make_pattern()
    order = make_order(pattern)
    workload = make_workload(pattern, element_type="float16")
    order = order.model_copy(update={"workload": workload})
    return replace(make_task(pattern), order=order, problem=Problem(workload, pattern))


def test_a_policy_that_writes_no_programs_of_a_type_is_left_out_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def first_batch() -> Batch:
        sampler = idle_sampler(PolicyFolder(write_policy(tmp_path, make_policy())))
        sources = Sources(sampler, batch_candidates=8, samples_in_flight=8)
        return await anext(STRATEGIES["auto"](short_task(), sources, 8, Standing()))

    with caplog.at_level(logging.INFO):
        batch = asyncio.run(first_batch())
    assert batch and {candidate.origin.kind for candidate in batch} == {"family"}
    assert all("__half" in candidate.program for candidate in batch)
    assert "the policy writes no programs of spmv float16 and is left out" in caplog.text


def test_samples_alone_of_such_a_type_are_refused_with_what_serves_it(tmp_path: Path) -> None:
    async def first_batch() -> Batch:
        sampler = idle_sampler(PolicyFolder(write_policy(tmp_path, make_policy())))
        return await anext(STRATEGIES["sample"](short_task(), Sources(sampler, 8, 8), 8, Standing()))

    with pytest.raises(Unavailable, match="writes no programs of spmv float16; search=families does"):
        asyncio.run(first_batch())


def test_a_policy_folder_says_which_types_it_writes(tmp_path: Path) -> None:
    policy = make_policy()
    described = replace(policy.description, element_types=("float32", "bfloat16"))
    folder = write_policy(tmp_path, replace(policy, description=described))
    assert PolicyFolder(folder).prompt_writer().element_types == ("float32", "bfloat16")
    assert load_description(folder) == described
