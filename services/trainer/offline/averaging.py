"""Two policies' weights in between, of which the one went on learning from the other (WiSE-FT, Wortsman et al. 2022).

What both can do they can do in between as a rule, often better than either: what a short stage unlearned comes back
sooner than what it taught goes.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from services.trainer.tokenizer import load_tokenizer
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy, load_policy, save_policy, save_tokenizer


def add_average(parser: argparse.ArgumentParser) -> None:
    """Options of the stage."""
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy that learned on")
    parser.add_argument("--before", type=Path, required=True, help="folder of the one that it began as")
    parser.add_argument("--share", type=float, default=0.5, help="of the way from the one before")
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy in between")
    parser.set_defaults(run=_run_average)


def _run_average(options: argparse.Namespace) -> dict[str, object]:
    if not 0 < options.share < 1:
        raise SystemExit(f"--share is {options.share}: must be above 0 and below 1")
    tokenizer, known = (load_tokenizer(folder / "tokenizer.json") for folder in (options.policy, options.before))
    if tokenizer.to_str() != known.to_str():
        raise SystemExit(f"{options.policy} and {options.before} have different tokenizers")
    policy = in_between(load_policy(options.before), load_policy(options.policy), options.share)
    save_policy(policy, options.out)
    save_tokenizer(tokenizer.to_str(), options.out)
    return {"share": options.share, "name": policy.description.name}


def in_between(before: Policy, after: Policy, share: float) -> Policy:
    """`after`, changed in place to so much of the way from `before`.

    Raises InvalidOption where their weights are of other names or shapes.
    """
    training = {**after.description.training, "averaged": {"share": share, "before": before.description.name}}
    for network, other in ((after.model, before.model), (after.encoder, before.encoder)):
        weights, was = network.state_dict(), other.state_dict()
        shapes, shapes_before = ({name: each.shape for name, each in known.items()} for known in (weights, was))
        differing = next(
            (name for name in {**shapes, **shapes_before} if shapes.get(name) != shapes_before.get(name)), None
        )
        if differing is not None:
            raise InvalidOption(f"{differing} is not the same in both policies", field="policy", value=differing)
        blended = {name: torch.lerp(was[name].float(), each.float(), share) for name, each in weights.items()}
        network.load_state_dict(blended)
    return replace(after, description=replace(after.description, training=training))
