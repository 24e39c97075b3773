"""Pieces of a sample as vLLM tells them, and the swaps between them."""

from types import SimpleNamespace

import pytest

from services.generator.policy.engine import Sample, _PartialSample


class Letters:
    """A tokenizer: token 1 is an `a`."""

    def decode(self, token_ids: list[int], **options: bool) -> str:
        assert options == {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        return "".join(chr(ord("a") + token - 1) for token in token_ids)


def piece(tokens: list[int], logprobs: list[float]) -> SimpleNamespace:
    return SimpleNamespace(token_ids=tokens, logprobs=SimpleNamespace(logprobs=logprobs))


def whole(partial: _PartialSample, version: int = 3) -> Sample:
    return partial.sample(Letters(), version)


def test_a_sample_may_come_whole_or_in_pieces() -> None:
    at_once, by_pieces = _PartialSample(), _PartialSample()
    at_once.add(piece([1, 2, 3], [-0.5, -0.25, -0.125]))
    by_pieces.add(piece([1], [-0.5]))
    by_pieces.add(piece([2, 3], [-0.25, -0.125]))
    assert whole(at_once) == whole(by_pieces) == Sample("abc", (1, 2, 3), (-0.5, -0.25, -0.125), (3, 3, 3))


def test_a_last_piece_without_a_token_brings_no_log_probabilities_of_its_own() -> None:
    partial = _PartialSample()
    partial.add(piece([1], [-0.5]))
    partial.add(piece([2], [-0.25]))
    partial.add(piece([], [-0.5, -0.25]))
    assert (whole(partial).token_ids, whole(partial).logprobs) == ((1, 2), (-0.5, -0.25))


def test_such_a_piece_may_come_merged_with_the_one_before() -> None:
    partial = _PartialSample()
    partial.add(piece([1], [-0.5]))
    partial.add(piece([2], [-0.5, -0.25]))
    assert whole(partial) == Sample("ab", (1, 2), (-0.5, -0.25), (3, 3))


def test_fewer_log_probabilities_than_tokens_are_no_sample() -> None:
    with pytest.raises(ValueError, match="1 log-probabilities of 2 tokens"):
        _PartialSample().add(piece([1, 2], [-0.5]))


def test_each_token_is_of_the_version_that_was_loaded_when_it_was_counted() -> None:
    partial = _PartialSample()
    partial.note_swap(1, counted=2)
    partial.note_swap(2, counted=2)
    partial.note_swap(3, counted=5)
    partial.add(piece([1, 2, 3, 4, 5, 6], [-1.0] * 6))
    assert whole(partial, version=4).versions == (1, 1, 3, 3, 3, 4)


def test_a_sample_that_had_not_begun_at_a_swap_is_of_what_came_after() -> None:
    partial = _PartialSample()
    partial.note_swap(1, counted=None)
    partial.add(piece([1, 2], [-1.0, -1.0]))
    assert partial.is_beyond_the_swap
    assert whole(partial, version=2).versions == (2, 2)


def test_a_sample_that_had_ended_at_a_swap_is_of_what_came_before() -> None:
    partial = _PartialSample()
    partial.add(piece([1], [-1.0]))
    partial.note_swap(1, counted=None)
    partial.add(piece([2], [-1.0]))
    assert not partial.is_beyond_the_swap
    assert whole(partial, version=2).versions == (1, 1)
