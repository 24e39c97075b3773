"""A policy without the supervised stage: a language model that was pretrained, and an encoder that nothing taught.

    python -m benchmarks.learning.untaught LANGUAGE_MODEL TOKENIZER FOLDER [--encoder profiled]

What a course makes of it says what the supervised stage is worth (docs/training.md).
"""

import argparse
from pathlib import Path

import torch

from services.trainer.offline.supervised_commands import fresh_networks
from sparsesmith.policy.checkpoint import Policy, save_policy, save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.prompts.arrays import ENCODER_KINDS, FEATURE_VERSIONS, EncoderKind

NAME = "pretrained"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language_model", type=Path, help="folder that the stage `pretrain` wrote")
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json that it was pretrained with")
    parser.add_argument("folder", type=Path, help="of the policy")
    parser.add_argument("--encoder", choices=ENCODER_KINDS, default="profiled")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    torch.manual_seed(options.seed)
    write_untaught(options.language_model, options.tokenizer, options.folder, options.encoder)


def write_untaught(language_model: Path, tokenizer: Path, folder: Path, encoder: EncoderKind) -> None:
    """The policy's folder, as every service reads one."""
    networks = fresh_networks(language_model, encoder)
    description = PolicyDescription(NAME, encoder, feature_version=FEATURE_VERSIONS[encoder], training={})
    save_policy(Policy(networks.model, networks.encoder, description), folder)
    save_tokenizer(tokenizer.read_text(encoding="utf-8"), folder)


if __name__ == "__main__":
    main()
