import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
import torch

from services.generator.policy.engine import (
    EmbeddingPrompt,
    EngineFailed,
    InvalidPrompt,
    Sample,
    TokenPrompt,
    _tokens_of,
)
from tests.generator.conftest import LivePolicy
from tests.generator.tiny_policy import HIDDEN, make_policy, publish, reference_logprobs

CLOSE = 1e-4
"""Log-probabilities of two implementations of the same float32 model."""


def make_embeddings(tokens: int = 20, seed: int = 0) -> torch.Tensor:
    return torch.randn(tokens, HIDDEN, generator=torch.Generator().manual_seed(seed)) * 0.3


async def sampled(live: LivePolicy, max_tokens: int = 64, embeddings: torch.Tensor | None = None) -> Sample:
    prompt = EmbeddingPrompt(make_embeddings() if embeddings is None else embeddings)
    engine = await live.host.serving()
    return await engine.sample(prompt, temperature=1.0, max_tokens=max_tokens)


def test_log_probabilities_of_a_sample_are_those_of_the_model(live_policy: LivePolicy) -> None:
    sample = live_policy.run(sampled(live_policy))
    expected = reference_logprobs(live_policy.policy, make_embeddings(), sample.token_ids)
    torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=CLOSE, rtol=0)
    assert len(sample.token_ids) == len(sample.versions)


def test_log_probabilities_are_those_after_temperature(live_policy: LivePolicy) -> None:
    async def cool() -> Sample:
        engine = await live_policy.host.serving()
        return await engine.sample(EmbeddingPrompt(make_embeddings()), temperature=0.25, max_tokens=1)

    sample = live_policy.run(cool())
    with torch.no_grad():
        logits = live_policy.policy.model(inputs_embeds=make_embeddings()[None]).logits[0, -1].float()
    expected = torch.log_softmax(logits / 0.25, -1)[sample.token_ids[0]]
    assert sample.logprobs[0] == pytest.approx(float(expected), abs=CLOSE)


def test_without_unlikely_tokens_the_log_probability_is_that_among_the_others(live_policy: LivePolicy) -> None:
    async def warm() -> list[Sample]:
        engine = await live_policy.host.serving()
        prompt = EmbeddingPrompt(make_embeddings())
        return [await engine.sample(prompt, temperature=2.0, max_tokens=1, min_p=0.9) for _ in range(16)]

    samples = live_policy.run(warm())
    with torch.no_grad():
        logits = live_policy.policy.model(inputs_embeds=make_embeddings()[None]).logits[0, -1].float()
    whole = torch.log_softmax(logits / 2.0, -1)
    likely = whole >= whole.max() + math.log(0.9)
    assert 0 < int(likely.sum()) < len(whole)
    expected = torch.log_softmax(whole.masked_fill(~likely, -math.inf), -1)
    for sample in samples:
        assert likely[sample.token_ids[0]]
        assert sample.logprobs[0] == pytest.approx(float(expected[sample.token_ids[0]]), abs=CLOSE)


@pytest.mark.parametrize(
    ("embeddings", "said"),
    [
        (torch.zeros(4, HIDDEN + 1), "shape"),
        (torch.zeros(HIDDEN), "shape"),
        (torch.zeros(4, HIDDEN, dtype=torch.int64), "floating-point"),
        (torch.full((4, HIDDEN), torch.nan), "finite"),
        (torch.full((4, HIDDEN), 1e300, dtype=torch.float64), "finite"),
        (torch.zeros(0, HIDDEN), "0 tokens"),
        (torch.zeros(3000, HIDDEN), "3000 tokens"),
    ],
)
def test_bad_embeddings_are_refused_before_the_engine_sees_them(
    live_policy: LivePolicy, embeddings: torch.Tensor, said: str
) -> None:
    with pytest.raises(InvalidPrompt, match=said):
        live_policy.run(sampled(live_policy, embeddings=embeddings))
    assert live_policy.run(sampled(live_policy, max_tokens=4)).token_ids


def test_token_ids_beyond_the_vocabulary_are_refused(live_policy: LivePolicy) -> None:
    async def beyond() -> None:
        engine = await live_policy.host.serving()
        await engine.sample(TokenPrompt((1, engine.vocabulary_size)), temperature=1.0, max_tokens=4)

    with pytest.raises(InvalidPrompt, match="token ids"):
        live_policy.run(beyond())


def test_a_prompt_of_tokens_is_sampled_from(live_policy: LivePolicy) -> None:
    token_ids = (5, 6, 7, 8)

    async def sampled() -> Sample:
        engine = await live_policy.host.serving()
        return await engine.sample(TokenPrompt(token_ids), temperature=1.0, max_tokens=16)

    sample = live_policy.run(sampled())
    embeddings = live_policy.policy.model.get_input_embeddings()(torch.tensor(token_ids)).detach()
    expected = reference_logprobs(live_policy.policy, embeddings, sample.token_ids)
    torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=CLOSE, rtol=0)


def test_requests_in_flight_survive_new_weights_and_each_token_names_the_version_it_was_sampled_under(
    live_policy: LivePolicy, exchange_dir: Path
) -> None:
    old, new = live_policy.policy, make_policy(seed=1, version=1)
    path = exchange_dir / publish(exchange_dir, new).weights

    async def across_a_publish() -> list[Sample]:
        engine = await live_policy.host.serving()
        samples = [asyncio.create_task(sampled(live_policy, max_tokens=900)) for _ in range(16)]
        while not any(_tokens_of(engine._llm).values()):
            await asyncio.sleep(0.02)
        await engine.publish((path,), 1, live_policy.writer.prepared(path, 1))
        ended = await asyncio.gather(*samples)
        return [*ended, *await asyncio.gather(*[sampled(live_policy) for _ in range(4)])]

    samples = live_policy.run(across_a_publish())
    assert any(0 < sample.versions.count(0) < len(sample.versions) for sample in samples), "none was in flight"
    assert samples[-1].versions[0] == 1
    for sample in samples:
        by_old = reference_logprobs(old, make_embeddings(), sample.token_ids)
        by_new = reference_logprobs(new, make_embeddings(), sample.token_ids)
        expected = torch.where(torch.tensor(sample.versions) == 0, by_old, by_new)
        torch.testing.assert_close(torch.tensor(sample.logprobs), expected, atol=CLOSE, rtol=0)
    restore(live_policy)


def restore(live: LivePolicy) -> None:
    """The session's first weights again."""

    async def publish_first() -> None:
        engine = await live.host.serving()
        await engine.publish(live.folder.weight_files, 0, live.writer.use_shipped)

    live.run(publish_first())


def test_the_encoder_changes_with_the_language_model(live_policy: LivePolicy, exchange_dir: Path) -> None:
    from tests.generator.orders import make_pattern, make_prompt, make_workload

    pattern = make_pattern()

    def written() -> tuple[torch.Tensor, int | None]:
        found = live_policy.writer.write(pattern, make_workload(pattern), make_prompt())
        assert isinstance(found, EmbeddingPrompt)
        return found.embeddings, found.version

    before = written()
    path = exchange_dir / publish(exchange_dir, make_policy(seed=3, version=9)).weights
    swap = live_policy.writer.prepared(path, 9)
    torch.testing.assert_close(written(), before)
    swap()
    changed, version = written()
    assert version == 9
    assert (changed - before[0]).abs().max() > 0.01
    live_policy.writer.use_shipped()
    torch.testing.assert_close(written(), before)


def test_a_killed_engine_fails_its_samples_and_is_replaced(live_policy: LivePolicy) -> None:
    """The last test of this file by choice: the session's engine is another one afterwards."""

    async def kill_while_sampling() -> Sample:
        engine = await live_policy.host.serving()
        samples = [asyncio.create_task(sampled(live_policy, max_tokens=900)) for _ in range(4)]
        await asyncio.sleep(0.2)
        for child in active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
        failures = await asyncio.gather(*samples, return_exceptions=True)
        assert all(isinstance(failure, EngineFailed | Sample) for failure in failures)
        assert any(isinstance(failure, EngineFailed) for failure in failures)
        last = await sampled(live_policy)
        for late in (
            engine.sample(EmbeddingPrompt(make_embeddings()), temperature=1.0, max_tokens=4),
            engine.publish(live_policy.folder.weight_files, 0, live_policy.writer.use_shipped),
        ):
            with pytest.raises(EngineFailed):
                await late
        return last

    assert live_policy.run(kill_while_sampling()).token_ids


class CountedOutputs:
    """vLLM's engine, with what it tells of each sample counted."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.counts: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    async def generate(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        number = len(self.counts)
        self.counts.append(0)
        async for output in self._llm.generate(*arguments, **options):
            self.counts[number] += 1
            yield output


def test_the_first_sample_under_a_version_is_told_token_by_token_and_others_at_once(
    live_policy: LivePolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def told(is_timed: bool) -> tuple[Sample, int]:
        engine = await live_policy.host.serving()
        counted = CountedOutputs(engine._llm)
        monkeypatch.setattr(engine, "_llm", counted)
        if is_timed:
            monkeypatch.setattr(engine, "first_token_at", None)
        try:
            sample = await engine.sample(EmbeddingPrompt(make_embeddings()), temperature=1.0, max_tokens=200)
        finally:
            monkeypatch.undo()
        return sample, counted.counts[0]

    live_policy.run(sampled(live_policy, max_tokens=1))
    _, at_once = live_policy.run(told(is_timed=False))
    first, by_pieces = live_policy.run(told(is_timed=True))
    assert at_once == 1
    assert by_pieces > len(first.token_ids) / 2
    assert len(first.token_ids) == len(first.logprobs)
    expected = reference_logprobs(live_policy.policy, make_embeddings(), first.token_ids)
    torch.testing.assert_close(torch.tensor(first.logprobs), expected, atol=CLOSE, rtol=0)
