"""A policy under another tokenizer: what both know stays, what is new begins as the mean of what spelt it before."""

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from services.trainer.offline.commands import run_stage
from services.trainer.offline.retokenizing import under_tokenizer
from services.trainer.policy_model import new_language_model
from services.trainer.tokenizer import SPECIAL_TOKENS, TokenizerSize, encode_program, load_tokenizer, train_tokenizer
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy, load_policy, save_policy, save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.encoder import MatrixEncoder
from tests.trainer.conftest import TINY, make_program

PROGRAMS = [make_program(lanes) for lanes in (2, 4, 8, 16, 32)]


def make_tokenizer(phrases: int) -> Tokenizer:
    size = TokenizerSize(vocabulary=400 + phrases, phrases=phrases, phrase_characters=60)
    return train_tokenizer(PROGRAMS, PROGRAMS, size)


@pytest.fixture(scope="module")
def before() -> Tokenizer:
    return make_tokenizer(5)


@pytest.fixture(scope="module")
def after() -> Tokenizer:
    return make_tokenizer(60)


def make_policy(tokenizer: Tokenizer) -> Policy:
    torch.manual_seed(0)
    model = new_language_model(TINY, tokenizer.get_vocab_size(), seed=0)
    encoder = MatrixEncoder("profiled", TINY.hidden)
    return Policy(model, encoder, PolicyDescription("tiny", "profiled", feature_version=2))


def embeddings(policy: Policy) -> torch.Tensor:
    weights: torch.Tensor = policy.model.model.embed_tokens.weight
    return weights.detach().clone()


def test_what_both_know_means_what_it_meant(before: Tokenizer, after: Tokenizer) -> None:
    policy = make_policy(before)
    was = embeddings(policy)
    changed, kept = under_tokenizer(policy, before, after)
    now, known = embeddings(changed), [token for token in after.get_vocab() if before.token_to_id(token) is not None]
    assert len(now) == after.get_vocab_size() and kept == len(known) > len(SPECIAL_TOKENS)
    for token in known:
        torch.testing.assert_close(now[after.token_to_id(token)], was[before.token_to_id(token)])


def test_a_new_token_begins_as_the_mean_of_what_spelt_it(before: Tokenizer, after: Tokenizer) -> None:
    policy = make_policy(before)
    was = embeddings(policy)
    now = embeddings(under_tokenizer(policy, before, after)[0])
    new = {token for token in after.get_vocab() if before.token_to_id(token) is None}
    token = max(new, key=len)
    pieces = before.encode(after.decoder.decode([token]), add_special_tokens=False).ids
    assert len(pieces) > 1
    torch.testing.assert_close(now[after.token_to_id(token)], was[pieces].mean(dim=0))


def test_output_and_input_share_the_new_embedding(before: Tokenizer, after: Tokenizer) -> None:
    policy, _ = under_tokenizer(make_policy(before), before, after)
    ids = torch.tensor([encode_program(after, PROGRAMS[0])])
    logits = policy.model(input_ids=ids).logits
    assert logits.shape == (1, ids.shape[1], after.get_vocab_size())
    assert policy.model.lm_head.weight.data_ptr() == policy.model.model.embed_tokens.weight.data_ptr()


def test_the_stage_writes_a_policy_that_loads(before: Tokenizer, after: Tokenizer, tmp_path: Path) -> None:
    save_policy(make_policy(before), tmp_path / "policy")
    save_tokenizer(before.to_str(), tmp_path / "policy")
    after.save(str(tmp_path / "tokenizer.json"))
    words = ["--policy", str(tmp_path / "policy"), "--tokenizer", str(tmp_path / "tokenizer.json")]
    report = run_stage(["retokenize", *words, "--out", str(tmp_path / "out")])
    loaded = load_policy(tmp_path / "out")
    assert loaded.model.config.vocab_size == report["tokens"] == after.get_vocab_size()
    assert loaded.description.training["retokenized"]["kept"] == report["kept"]
    assert load_tokenizer(tmp_path / "out" / "tokenizer.json").get_vocab() == after.get_vocab()


def test_special_tokens_with_other_numbers_are_refused(before: Tokenizer) -> None:
    other = Tokenizer.from_str(before.to_str().replace("<parent>", "<elder>"))
    with pytest.raises(InvalidOption, match="<parent>"):
        under_tokenizer(make_policy(before), before, other)
