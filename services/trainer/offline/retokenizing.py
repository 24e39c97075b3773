"""A policy under another tokenizer: it keeps what it has learned, and learns on from there.

A token that both have means what it meant. One that is new begins as the mean of the tokens that spelt its text before.
That is a start for learning and no more: until it has learned on, a policy is far less sure of any program.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders

from services.trainer.tokenizer import SPECIAL_TOKENS, load_tokenizer
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy, load_policy, save_policy, save_tokenizer

_BYTES = decoders.ByteLevel()
_NO_TEXT = "\N{REPLACEMENT CHARACTER}"
"""What bytes become that are no character alone."""


def add_retokenize(parser: argparse.ArgumentParser) -> None:
    """Options of the stage."""
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json that it is to have")
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy under it, which is to learn on")
    parser.set_defaults(run=_run_retokenize)


def _run_retokenize(options: argparse.Namespace) -> dict[str, object]:
    before, after = load_tokenizer(options.policy / "tokenizer.json"), load_tokenizer(options.tokenizer)
    policy, num_kept = under_tokenizer(load_policy(options.policy), before, after)
    training = {**policy.description.training, "retokenized": {"kept": num_kept, "tokens": after.get_vocab_size()}}
    save_policy(replace(policy, description=replace(policy.description, training=training)), options.out)
    save_tokenizer(after.to_str(), options.out)
    return {"tokens": after.get_vocab_size(), "kept": num_kept}


def under_tokenizer(policy: Policy, before: Tokenizer, after: Tokenizer) -> tuple[Policy, int]:
    """The policy with an embedding for each token of `after`, changed in place, and how many it had already.

    Raises InvalidOption where special tokens have other numbers, which prompts count on.
    """
    for number, token in enumerate(SPECIAL_TOKENS):
        if after.token_to_id(token) != number:
            raise InvalidOption(
                f"the tokenizer has {token} as {after.token_to_id(token)}, not as {number}",
                field="tokenizer",
                value=after.token_to_id(token),
                limit=number,
            )
    embedding = policy.model.model.embed_tokens.weight.detach().clone()
    vocabulary = after.get_vocab()
    rows = torch.zeros(len(vocabulary), embedding.shape[1], dtype=embedding.dtype)
    for token, number in vocabulary.items():
        rows[number] = embedding[_pieces(token, before)].mean(dim=0)
    policy.model.resize_token_embeddings(len(vocabulary))
    with torch.no_grad():
        policy.model.model.embed_tokens.weight.copy_(rows)
    policy.model.tie_weights()
    return policy, sum(before.token_to_id(token) is not None for token in vocabulary)


def _pieces(token: str, before: Tokenizer) -> list[int]:
    """What a token was before: itself, or the tokens of its text, or those of its bytes where they are no text."""
    same = before.token_to_id(token)
    if same is not None:
        return [same]
    text = _BYTES.decode([token])
    if _NO_TEXT not in text:
        return list(before.encode(text, add_special_tokens=False).ids)
    return [number for byte in token if (number := before.token_to_id(byte)) is not None]
