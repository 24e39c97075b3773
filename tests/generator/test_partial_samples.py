"""Pieces of a sample as vLLM streams them."""

from types import SimpleNamespace

from services.generator.policy.engine import _PartialSample


def piece(text: str, tokens: list[int], logprobs: list[dict[int, SimpleNamespace]]) -> SimpleNamespace:
    return SimpleNamespace(text=text, token_ids=tokens, logprobs=logprobs)


def log(token: int, value: float) -> dict[int, SimpleNamespace]:
    return {token: SimpleNamespace(logprob=value)}


def test_a_last_piece_without_a_token_brings_no_log_probabilities_of_its_own() -> None:
    partial = _PartialSample()
    partial.add(piece("a", [1], [log(1, -0.5)]), version=3)
    partial.add(piece("b", [2], [log(2, -0.25)]), version=3)
    partial.add(piece("", [], [log(1, -0.5), log(2, -0.25)]), version=3)
    assert (partial.sample().token_ids, partial.sample().logprobs) == ((1, 2), (-0.5, -0.25))


def test_such_a_piece_may_come_merged_with_the_one_before() -> None:
    partial = _PartialSample()
    partial.add(piece("a", [1], [log(1, -0.5)]), version=3)
    partial.add(piece("b", [2], [log(2, -0.25), log(1, -0.5), log(2, -0.25)]), version=3)
    sample = partial.sample()
    assert (sample.text, sample.token_ids, sample.logprobs, sample.versions) == ("ab", (1, 2), (-0.5, -0.25), (3, 3))
