"""The taught critic from a shell; see `services.trainer.offline`."""

import argparse
import os
from dataclasses import asdict
from pathlib import Path

from services.trainer.offline.critic_training import CriticSettings, read_states, teach
from services.trainer.offline.example_file import read_examples
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.prompt_pool import Device, build_pool
from services.trainer.offline.sides import SIDES, Patterns
from services.trainer.offline.supervised_commands import told
from services.trainer.offline.targets import TargetRule
from services.trainer.offline.value_training import Programs, judged
from services.trainer.policy_model import PolicyNetworks
from services.trainer.time_critic import save_time_head
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.policy.checkpoint import load_policy


def add_critic(parser: argparse.ArgumentParser) -> None:
    """Options of the stage that teaches a policy's critic."""
    parser.add_argument("--examples", type=Path, required=True, help="what the stage `examples` wrote")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--policy", type=Path, required=True, help="folder; critic.safetensors is written into it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    add_fields(parser, CriticSettings())
    parser.set_defaults(run=_run_critic)


def _run_critic(options: argparse.Namespace) -> dict[str, object]:
    settings = fields_from(CriticSettings, options)
    programs = Programs(load_tokenizer(options.policy / "tokenizer.json"))
    known = read_examples(options.examples, TargetRule())
    measured = {side: [each for each in known.workloads[side] if not each.is_expected] for side in SIDES}
    sides = {side: [judged(each, Device()) for each in measured[side]] for side in SIDES}
    policy, patterns = load_policy(options.policy), Patterns(options.patterns)
    networks = PolicyNetworks(policy.model, policy.encoder)
    named = {each.pattern: patterns.named(each.pattern) for side in SIDES for each in sides[side]}
    pool = build_pool(named, networks.encoder.kind, 1, settings.device, options.processes)
    train, validation = (read_states(networks, pool, sides[side], programs, settings, told) for side in SIDES)
    head, report = teach(train, validation, settings, told)
    save_time_head(head, options.policy)
    return {"settings": asdict(settings), "records": known.head, **asdict(report)}
