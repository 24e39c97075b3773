"""The value model from a shell; see `services.trainer.offline`."""

import argparse
import os
from dataclasses import asdict
from pathlib import Path

import torch

from services.trainer.offline.example_file import read_examples
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.prompt_pool import Device, build_pool
from services.trainer.offline.saved_run import SavedRun
from services.trainer.offline.sides import SIDES, Patterns
from services.trainer.offline.supervised_commands import fresh_networks, inputs_of, told
from services.trainer.offline.targets import TargetRule
from services.trainer.offline.value_training import Programs, ValueSettings, judged, train_value_model
from services.trainer.policy_model import PolicySize, new_language_model, num_parameters
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.policy.checkpoint import load_policy, save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.policy.value import ValueModel, save_value_model
from sparsesmith.prompts.arrays import ENCODER_KINDS, FEATURE_VERSIONS


def add_value(parser: argparse.ArgumentParser) -> None:
    """Options of the stage that trains a value model."""
    parser.add_argument("--examples", type=Path, required=True, help="what the stage `examples` wrote")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--tokenizer", type=Path, required=True)
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--policy", type=Path, help="its encoder and trunk are gone on from")
    start.add_argument("--pretrained", type=Path, help="language model that is gone on from, with a fresh encoder")
    parser.add_argument("--encoder", choices=ENCODER_KINDS, default="profiled", help="without --policy")
    parser.add_argument("--prompt-samples", type=int, default=8, help="samples of each pattern held ready")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--name", default="value")
    parser.add_argument("--save", type=Path, help="the run's state: with it, a run that was killed goes on")
    parser.add_argument("--save-every-s", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the value model")
    add_fields(parser, PolicySize())
    add_fields(parser, ValueSettings())
    parser.set_defaults(run=_run_value)


def _run_value(options: argparse.Namespace) -> dict[str, object]:
    settings, tokenizer = fields_from(ValueSettings, options), load_tokenizer(options.tokenizer)
    known, programs = read_examples(options.examples, TargetRule()), Programs(tokenizer)
    most = settings.max_program_tokens
    measured = {side: [each for each in known.workloads[side] if not each.is_expected] for side in SIDES}
    sides = {side: [programs.within(judged(each, Device()), most) for each in measured[side]] for side in SIDES}
    torch.manual_seed(settings.seed)
    model = _fresh(options, tokenizer.get_vocab_size(), settings.seed)
    patterns = Patterns(options.patterns)
    names = sorted({each.pattern for side in SIDES for each in sides[side]})
    named = {name: patterns.named(name) for name in names}
    pool = build_pool(named, model.encoder.kind, options.prompt_samples, settings.device, options.processes)
    told(f"{num_parameters(model)} parameters, {len(sides['train'])} + {len(sides['validation'])} workloads")
    files = [options.examples, options.tokenizer]
    saved = SavedRun(options.save, {**asdict(settings), **inputs_of(files)}, options.save_every_s)
    report = train_value_model(model, pool, sides, programs, settings, log=told, saved=saved)
    summary = {"settings": asdict(settings), "parameters": num_parameters(model), "records": known.head}
    summary |= asdict(report)
    kind = model.encoder.kind
    description = PolicyDescription(
        options.name, kind, feature_version=FEATURE_VERSIONS[kind], training={"value": summary}
    )
    save_value_model(model, description, options.out)
    save_tokenizer(tokenizer.to_str(), options.out)
    saved.end()
    return summary


def _fresh(options: argparse.Namespace, vocabulary: int, seed: int) -> ValueModel:
    """On the trunk of a policy, of a language model, or of nothing."""
    if options.policy is not None:
        policy = load_policy(options.policy)
        return ValueModel(policy.model, policy.encoder)
    if options.pretrained is not None:
        networks = fresh_networks(options.pretrained, options.encoder)
        return ValueModel(networks.model, networks.encoder)
    model = new_language_model(fields_from(PolicySize, options), vocabulary, seed)
    return ValueModel(model, MatrixEncoder(options.encoder, model.config.hidden_size))
