import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from services.generator.policy.engine import EmbeddingPrompt, TokenPrompt
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.matrix_prompts import MatrixPrompts
from services.generator.policy.sampling import PolicySampler, SamplingOptions, Warmth
from services.generator.policy.text_policy import TextPrompts
from services.generator.policy.value_filter import ValueFilter
from services.generator.search import STRATEGIES, Sources, Standing
from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.batch import assemble_samples
from services.trainer.online.learner import Learner
from services.trainer.online.prompts import Asked
from services.trainer.policy_model import PolicyNetworks
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.checkpoint import save_tokenizer
from sparsesmith.policy.description import DESCRIPTION_FILE, ENCODER_FILE, PolicyDescription
from sparsesmith.policy.value import ValueModel, save_value_model
from sparsesmith.program.program import parse_program
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Candidate, Sampled, Workload
from tests.generator.conftest import LivePolicy
from tests.generator.orders import make_pattern, make_prompt, make_task, make_workload
from tests.generator.tiny_policy import make_policy, make_tokenizer, reference_logprobs, write_policy

BOS_ID = make_tokenizer().token_to_id("<bos>") or 0
RLOO = LearnerOptions(algorithm="rloo")


def make_sampler(live: LivePolicy, max_program_tokens: int = 40, **changes: Any) -> PolicySampler:
    return PolicySampler(live.host, live.writer, SamplingOptions("sm_90", 1.0, max_program_tokens, **changes))


def collect(
    live: LivePolicy,
    search: str,
    limit: int,
    sampler: PolicySampler | None,
    value_filter: ValueFilter | None = None,
) -> list[Candidate]:
    async def all_batches() -> list[Candidate]:
        sources = Sources(sampler, batch_candidates=4, samples_in_flight=8, value_filter=value_filter)
        batches = STRATEGIES[search](make_task(), sources, limit, Standing())  # type: ignore[index]
        return [candidate async for batch in batches for candidate in batch]

    return live.run(all_batches())


def test_samples_come_in_groups_with_what_the_trainer_needs_to_rebuild_them(live_policy: LivePolicy) -> None:
    candidates = collect(live_policy, "sample", 20, make_sampler(live_policy))
    assert len({candidate.candidate_id for candidate in candidates}) == 20
    origins = [candidate.origin for candidate in candidates]
    assert all(isinstance(origin, Sampled) for origin in origins)
    groups = {origin.group: origin.prompt for origin in origins if isinstance(origin, Sampled)}
    assert len(groups) == 2
    sizes = {origin.group: origin.group_size for origin in origins if isinstance(origin, Sampled)}
    assert sorted(size or 0 for size in sizes.values()) == [4, 16]
    assert len({prompt.sample_seed for prompt in groups.values()}) == 2
    pattern = make_task().problem.pattern
    for origin in origins[:4]:
        assert isinstance(origin, Sampled)
        written = live_policy.writer.write(pattern, make_workload(pattern), origin.prompt)
        assert isinstance(written, EmbeddingPrompt)
        expected = reference_logprobs(live_policy.policy, written.embeddings, origin.token_ids)
        torch.testing.assert_close(torch.tensor(origin.logprobs), expected, atol=1e-4, rtol=0)


def test_groups_that_explore_are_sampled_at_their_temperature_and_the_trainer_computes_the_same(
    live_policy: LivePolicy,
) -> None:
    sampler = make_sampler(live_policy, exploring_share=1.0, exploring=Warmth(1.5))
    origins = [each.origin for each in collect(live_policy, "sample", 8, sampler) if isinstance(each.origin, Sampled)]
    assert {origin.temperature for origin in origins} == {1.5}
    pattern = make_task().problem.pattern
    shown = [prompt_inputs(pattern, make_workload(pattern), origin.prompt) for origin in origins]
    batch = assemble_samples(origins, [Asked((BOS_ID,), each) for each in shown])
    learner = Learner(PolicyNetworks(live_policy.policy.model, live_policy.policy.encoder), RLOO)
    # As near as the check of engine against trainer asks for (0.02 nats); they lie 0.001 to 0.005 apart here.
    torch.testing.assert_close(learner.logprobs(batch), batch.behaviour_BT, atol=2e-2, rtol=0)
    at_one = replace(batch, temperature_B=torch.ones_like(batch.temperature_B))
    assert float((learner.logprobs(at_one) - batch.behaviour_BT).abs().max()) > 0.1


def test_groups_that_explore_without_unlikely_tokens_say_so(live_policy: LivePolicy) -> None:
    sampler = make_sampler(live_policy, exploring_share=1.0, exploring=Warmth(2.0, 0.1))
    origins = [each.origin for each in collect(live_policy, "sample", 4, sampler) if isinstance(each.origin, Sampled)]
    assert [(origin.temperature, origin.min_p) for origin in origins] == [(2.0, 0.1)] * 4


def test_the_share_of_groups_that_explore_is_as_set() -> None:
    options = SamplingOptions("sm_90", 1.0, 40, exploring_share=0.25, exploring=Warmth(1.3, 0.2))
    drawn = [options.warmth_of(seed) for seed in range(2000)]
    assert {each.min_p for each in drawn if each.temperature == 1.3} == {0.2}
    temperatures = [each.temperature for each in drawn]
    assert set(temperatures) == {1.0, 1.3}
    assert 0.2 < temperatures.count(1.3) / len(temperatures) < 0.3
    assert {SamplingOptions("sm_90", 1.0, 40).warmth_of(seed) for seed in range(100)} == {Warmth(1.0)}


@dataclass(frozen=True)
class Watching(ValueFilter):
    """Remembers what it was asked."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    """Samples, and how many of them were to be kept."""

    def best(self, pattern: Pattern, workload: Workload, samples: Sequence[Candidate], most: int) -> list[Candidate]:
        self.asked.append((len(samples), most))
        return super().best(pattern, workload, samples, most)


@pytest.mark.parametrize("search", ["sample", "auto"])
def test_with_a_value_model_the_best_of_several_times_as_many_samples_are_graded(
    live_policy: LivePolicy, tmp_path: Path, search: str
) -> None:
    torch.manual_seed(0)
    save_value_model(ValueModel(make_policy().model, make_policy().encoder), PolicyDescription("value"), tmp_path)
    save_tokenizer(make_tokenizer().to_str(), tmp_path)
    watching = Watching(tmp_path, 4)
    candidates = collect(live_policy, search, 40 if search == "auto" else 6, make_sampler(live_policy), watching)
    sampled = [each for each in candidates if isinstance(each.origin, Sampled)]
    assert len({each.candidate_id for each in sampled}) == len(sampled)
    assert sum(kept for _, kept in watching.asked) == len(sampled) > 0
    assert all(taken == 4 * kept for taken, kept in watching.asked)
    if search == "sample":
        assert len(sampled) == 6


def test_auto_asks_the_policy_once_the_first_programs_of_the_tuner_are_out(live_policy: LivePolicy) -> None:
    candidates = collect(live_policy, "auto", 100, make_sampler(live_policy))
    kinds = [candidate.origin.kind for candidate in candidates]
    assert set(kinds[:16]) == {"family"}
    assert "sampled" in kinds
    assert kinds[:100].count("sampled") < kinds[:100].count("family")


def test_auto_is_families_alone_without_a_policy(live_policy: LivePolicy) -> None:
    assert {candidate.origin.kind for candidate in collect(live_policy, "auto", 8, None)} == {"family"}


def test_auto_goes_on_with_families_where_the_policy_takes_no_prompt(live_policy: LivePolicy) -> None:
    too_long = make_sampler(live_policy, max_program_tokens=2044)
    assert {candidate.origin.kind for candidate in collect(live_policy, "auto", 8, too_long)} == {"family"}
    with pytest.raises(Unavailable, match="do not fit"):
        collect(live_policy, "sample", 8, too_long)


def test_a_search_that_is_given_up_ends_its_samples(live_policy: LivePolicy) -> None:
    async def take_one_batch() -> int:
        idle = len(asyncio.all_tasks())
        sources = Sources(make_sampler(live_policy, 900), batch_candidates=1, samples_in_flight=8)
        batches = STRATEGIES["sample"](make_task(), sources, 64, Standing())
        await anext(batches)
        assert len(asyncio.all_tasks()) > idle + 1, "samples are under way"
        await batches.aclose()  # type: ignore[attr-defined]
        await asyncio.sleep(0.1)
        return len(asyncio.all_tasks()) - idle

    # The engine may have started a task of its own that reads its output.
    assert live_policy.run(take_one_batch()) <= 1


def test_a_folder_without_an_encoder_is_prompted_in_text(tmp_path: Path) -> None:
    folder = write_policy(tmp_path, make_policy())
    assert isinstance(PolicyFolder(folder).prompt_writer(), MatrixPrompts)
    (folder / DESCRIPTION_FILE).unlink()
    (folder / ENCODER_FILE).unlink()
    text_folder = PolicyFolder(folder)
    writer = text_folder.prompt_writer()
    assert isinstance(writer, TextPrompts)
    assert all(not name.startswith("encoder.") for name in text_folder.shapes)
    pattern = make_pattern()
    arguments = pattern, make_workload(pattern), make_prompt(encoder="text")
    written = writer.write(*arguments)
    assert isinstance(written, TokenPrompt)
    assert written.is_for(0) and written.is_for(7), "a text is the same for every version"
    assert writer._tokenizer.text(written.token_ids) == text_prompt(*arguments)


@pytest.mark.parametrize("operation", ["spmv", "spmm"])
@pytest.mark.parametrize("element_type", ["float32", "float64", "float16", "bfloat16"])
def test_the_example_of_a_text_prompt_is_a_legal_program(operation: str, element_type: str) -> None:
    pattern = make_pattern()
    cols = 1 if operation == "spmv" else 8
    workload = make_workload(pattern, operation=operation, element_type=element_type, num_dense_cols=cols)
    text = text_prompt(pattern, workload, make_prompt(encoder="text"))
    example = text.split("A correct but slow program:\n")[1].split("\nThe matrix:")[0]
    program = parse_program(example, workload.operation, workload.element_type)
    assert program.format.name == "csr"
