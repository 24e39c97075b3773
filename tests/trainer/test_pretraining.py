"""Pretraining: token files, the time budget, and that a tiny model learns."""

import math
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, Qwen3ForCausalLM

from services.trainer.offline.pretraining import (
    PretrainingReport,
    PretrainingSettings,
    load_tokens,
    mean_loss,
    pack,
    pretrain,
    save_tokens,
)
from services.trainer.offline.saved_run import SavedRun
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.policy_model import PolicySize, ValueHead, new_language_model, num_parameters
from services.trainer.tokenizer import BOS, EOS
from sparsesmith.policy.checkpoint import MAX_SHARD_BYTES, save_language_model
from tests.trainer.conftest import TINY, make_program
from tests.trainer.killed_run import Killed, KilledAt

SETTINGS = PretrainingSettings(
    seconds=60, max_epochs=6, sequence_length=64, batch_sequences=4, micro_batch=2, log_every_s=1000
)


def run(tokenizer: Tokenizer, settings: PretrainingSettings) -> PretrainingReport:
    tokens = pack(
        tokenizer, [make_program(lanes, element) for lanes in (2, 4, 8, 16) for element in ("float", "double")] * 4
    )
    model = new_language_model(TINY, tokenizer.get_vocab_size(), seed=0)
    return pretrain(model, tokens, tokens[:1000], 3000, settings)


def test_packed_texts_stand_between_bos_and_eos(tokenizer: Tokenizer) -> None:
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    tokens = pack(tokenizer, ["int a;", "int b;"])
    assert tokens.dtype == np.uint16
    assert tokens[0] == bos
    assert (tokens == eos).sum() == (tokens == bos).sum() == 2
    assert tokenizer.decode(tokens.tolist()) == "int a;int b;"


def test_token_files_come_back_as_they_were_saved(tmp_path: Path) -> None:
    tokens = np.arange(5000, dtype=np.uint16)
    save_tokens(tmp_path / "tokens.bin.xz", tokens)
    assert np.array_equal(load_tokens(tmp_path / "tokens.bin.xz"), tokens)


def test_a_tiny_model_learns_its_corpus(tokenizer: Tokenizer) -> None:
    report = run(tokenizer, SETTINGS)
    assert report.held_out_loss < 0.5 * math.log(tokenizer.get_vocab_size())
    assert report.epochs == pytest.approx(6, abs=1)


def test_the_run_ends_when_its_time_is_up(tokenizer: Tokenizer) -> None:
    start = time.monotonic()
    report = run(tokenizer, replace(SETTINGS, seconds=1.0, max_epochs=1e6))
    assert 1.0 <= report.seconds < 5.0
    assert time.monotonic() - start < 30
    assert report.steps > 0


def test_two_micro_batches_give_the_gradient_of_one_batch(tokenizer: Tokenizer) -> None:
    whole = run(tokenizer, replace(SETTINGS, max_epochs=1, micro_batch=4))
    parts = run(tokenizer, replace(SETTINGS, max_epochs=1, micro_batch=2))
    assert parts.held_out_loss == pytest.approx(whole.held_out_loss, rel=0.02)


def test_an_untrained_model_is_as_good_as_guessing(tokenizer: Tokenizer) -> None:
    model = new_language_model(TINY, tokenizer.get_vocab_size(), seed=0)
    tokens = np.random.default_rng(0).integers(16, tokenizer.get_vocab_size(), 1000).astype(np.uint16)
    assert mean_loss(model, tokens, SETTINGS) == pytest.approx(math.log(model.config.vocab_size), rel=0.03)


def test_too_few_tokens_are_refused_with_the_number_that_is_needed(tokenizer: Tokenizer) -> None:
    model = new_language_model(TINY, tokenizer.get_vocab_size(), seed=0)
    with pytest.raises(ValueError, match="at least 129 are needed"):
        pretrain(model, np.zeros(100, np.uint16), np.zeros(100, np.uint16), 1, SETTINGS)


def test_the_schedule_rises_stays_and_falls() -> None:
    schedule = Schedule(warmup=0.1, decay=0.5, floor=0.02)
    factors = [schedule.factor(progress) for progress in (0.0, 0.1, 0.3, 0.75, 1.0)]
    assert factors == pytest.approx([0.02, 1.0, 1.0, 0.5, 0.02])


def test_every_parameter_is_optimised_once_and_moves() -> None:
    model = new_language_model(TINY, 128, seed=0)
    before = {name: value.clone() for name, value in model.named_parameters()}
    optimizer = Optimizer([model], matrix_rate=1e-2, other_rate=1e-2, decay=0.0)
    model(input_ids=torch.arange(1, 65)[None], labels=torch.arange(1, 65)[None]).loss.backward()
    optimizer.step(1.0)
    assert [name for name, value in model.named_parameters() if torch.equal(value, before[name])] == []


def test_the_default_policy_has_26_million_parameters_in_shards_of_the_allowed_size(tmp_path: Path) -> None:
    model = new_language_model(PolicySize(), 8192, seed=0)
    assert num_parameters(model) == pytest.approx(26e6, rel=0.02)
    save_language_model(model, tmp_path)
    shards = list(tmp_path.glob("model-*.safetensors"))
    assert len(shards) == 4
    assert max(shard.stat().st_size for shard in shards) <= MAX_SHARD_BYTES
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert torch.equal(loaded.model.norm.weight, model.model.norm.weight.bfloat16())
    assert loaded.dtype == torch.bfloat16


def test_an_untrained_value_head_says_zero() -> None:
    head = ValueHead(TINY.hidden)
    assert torch.equal(head(torch.randn(2, 5, TINY.hidden)), torch.zeros(2, 5))


def test_pretraining_that_was_killed_goes_on_with_the_very_next_step(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokens = pack(tokenizer, [make_program(lanes) for lanes in (2, 4, 8, 16)] * 4)
    settings = replace(SETTINGS, seconds=1e6, max_epochs=2)

    def trained(saved: SavedRun) -> tuple[PretrainingReport, Qwen3ForCausalLM]:
        model = new_language_model(TINY, tokenizer.get_vocab_size(), seed=0)
        return pretrain(model, tokens, tokens[:200], 600, settings, lambda _: None, saved), model

    through, expected = trained(SavedRun(None, {}))
    with pytest.raises(Killed):
        trained(KilledAt(tmp_path / "run.pt", step=2, counter="steps"))
    resumed, model = trained(SavedRun(tmp_path / "run.pt", {}))
    assert resumed.steps == through.steps > 3
    for name, weights in expected.state_dict().items():
        assert torch.allclose(model.state_dict()[name], weights, atol=1e-5), name
