"""The supervised stage and its evaluations from a shell; see `services.trainer.offline`."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import torch
from tokenizers import Tokenizer

from services.trainer.offline.example_file import read_examples
from services.trainer.offline.examples import ExampleRules, Examples
from services.trainer.offline.faults import refusal
from services.trainer.offline.judging import SamplingSettings, evaluate_policy
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.prompt_pool import build_pool
from services.trainer.offline.records import NUM_SMS
from services.trainer.offline.saved_run import SavedRun
from services.trainer.offline.sides import SIDES, Patterns
from services.trainer.offline.supervised import SupervisedSettings, held_out_nats, train_supervised
from services.trainer.offline.targets import TargetRule, WorkloadTargets
from services.trainer.offline.teaching import mixed
from services.trainer.policy_model import PolicyNetworks, num_parameters
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.checkpoint import Policy, load_language_model, load_policy, save_policy, save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.program.facts import Circumstances
from sparsesmith.prompts.arrays import ENCODER_KINDS, FEATURE_VERSIONS, EncoderKind


def add_sft(parser: argparse.ArgumentParser) -> None:
    """Options of the supervised stage."""
    _add_data(parser)
    parser.add_argument("--tokenizer", type=Path, help="needed with --pretrained; a policy has its own")
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--pretrained", type=Path, help="folder of the language model, which gets a fresh encoder")
    start.add_argument("--policy", type=Path, help="folder of a policy that is to learn on")
    parser.add_argument("--encoder", choices=ENCODER_KINDS, default="profiled", help="with --pretrained")
    parser.add_argument("--name", default="sparsesmith-28m")
    parser.add_argument(
        "--taught",
        type=Path,
        nargs="+",
        default=[],
        help="what the stage `teach` wrote, and other examples to learn from beside --examples",
    )
    parser.add_argument("--taught-share", type=float, default=0.5, help="of an epoch, about; default 0.5")
    parser.add_argument("--save", type=Path, help="the run's state: with it, a run that was killed goes on")
    parser.add_argument("--save-every-s", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy")
    add_fields(parser, SupervisedSettings())
    add_fields(parser, ExampleRules())
    add_fields(parser, TargetRule())
    parser.set_defaults(run=_run_sft)


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Options of the evaluation by samples."""
    _add_data(parser)
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--side", choices=SIDES, default="validation")
    parser.add_argument("--most-workloads", type=int, default=200)
    add_fields(parser, SamplingSettings())
    parser.set_defaults(run=_run_evaluate)


def add_nats(parser: argparse.ArgumentParser) -> None:
    """Options of the evaluation by likelihood."""
    _add_data(parser)
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch-sequences", type=int, default=64)
    parser.add_argument("--most-workloads", type=int, default=200, help="of each side")
    add_fields(parser, ExampleRules())
    parser.set_defaults(run=_run_nats)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--examples", type=Path, required=True, help="what the stage `examples` wrote")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--prompt-samples", type=int, default=16, help="samples of each pattern held ready")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)


def _run_sft(options: argparse.Namespace) -> dict[str, object]:
    settings, rule = fields_from(SupervisedSettings, options), fields_from(TargetRule, options)
    rules, start = fields_from(ExampleRules, options), _start(options)
    tokenizer, networks, kind = start.tokenizer, start.networks, start.networks.encoder.kind
    known, taught = read_examples(options.examples, rule), _taught(options, rule)
    train = Examples(mixed(known.workloads["train"], taught, options.taught_share), tokenizer, rules, settings.seed)
    validation = Examples(known.workloads["validation"], tokenizer, rules, settings.seed)
    for reason, count in (train.left_out + validation.left_out).items():
        print(f"{count} {reason} are left out", file=sys.stderr)
    patterns = _patterns(options.patterns, [*train.workloads, *validation.workloads])
    pool = build_pool(patterns, kind, options.prompt_samples, settings.device, options.processes)
    print(f"{num_parameters(networks)} parameters, {len(train)} + {len(validation)} workloads", file=sys.stderr)
    made = {"settings": asdict(settings), "targets": asdict(rule), "examples": asdict(rules)}
    files = (options.examples, *options.taught, *start.files)
    how = {"encoder": kind, "prompt_samples": options.prompt_samples}
    if taught:
        how |= {"taught": len(taught), "taught_share": options.taught_share}
    saved = SavedRun(options.save, {**made, **how, **inputs_of(files)}, options.save_every_s)
    report = train_supervised(networks, pool, train, validation, settings, log=told, saved=saved)
    summary = {**made, **how, "records": known.head, **asdict(report)}
    training = {**start.training, "supervised": summary}
    description = PolicyDescription(options.name, kind, feature_version=FEATURE_VERSIONS[kind], training=training)
    save_policy(Policy(networks.model, networks.encoder, description), options.out)
    save_tokenizer(tokenizer.to_str(), options.out)
    saved.end()
    return summary


@dataclass(frozen=True)
class _Start:
    """What the stage begins with."""

    networks: PolicyNetworks
    tokenizer: Tokenizer
    training: Mapping[str, object]
    """How it was made."""
    files: Sequence[Path]


def _start(options: argparse.Namespace) -> _Start:
    """A language model with a fresh encoder, or a whole policy. Raises SystemExit for a tokenizer that is missing, or
    not the policy's own."""
    folder = options.policy or options.pretrained
    own = None if options.policy is None else folder / "tokenizer.json"
    path = options.tokenizer or own
    if path is None:
        raise SystemExit("--pretrained needs --tokenizer")
    tokenizer, weights = load_tokenizer(path), sorted(folder.glob("*.safetensors"))
    if own is None:
        torch.manual_seed(options.seed)
        networks = fresh_networks(folder, options.encoder)
        return _Start(networks, tokenizer, _pretraining_report(folder), (path, *weights))
    if tokenizer.to_str() != load_tokenizer(own).to_str():
        raise SystemExit(f"--tokenizer {path} is not that of the policy {folder}: leave it out")
    policy = load_policy(folder)
    before = {**policy.description.training, "from": policy.description.name}
    if "supervised" in before:
        before["supervised_before"] = before.pop("supervised")
    return _Start(PolicyNetworks(policy.model, policy.encoder), tokenizer, before, (path, *weights))


def _taught(options: argparse.Namespace, rule: TargetRule) -> Sequence[WorkloadTargets]:
    """Raises SystemExit for a share that leaves nothing of the one or the other."""
    if not options.taught:
        return ()
    if not 0 < options.taught_share < 1:
        raise SystemExit(f"--taught-share is {options.taught_share}: must be above 0 and below 1")
    return [each for path in options.taught for each in read_examples(path, rule).workloads["train"]]


def _run_evaluate(options: argparse.Namespace) -> dict[str, object]:
    settings = fields_from(SamplingSettings, options)
    known = read_examples(options.examples, TargetRule())
    chosen = _thinned(known.workloads[options.side], options.most_workloads)
    policy = load_policy(options.policy)
    networks = PolicyNetworks(policy.model, policy.encoder).to(settings.device)
    patterns = _patterns(options.patterns, chosen)
    pool = build_pool(patterns, policy.encoder.kind, options.prompt_samples, settings.device, options.processes)
    is_legal = partial(_is_legal, patterns)
    report = evaluate_policy(networks, pool, chosen, _tokenizer_of(options.policy), settings, is_legal)
    return asdict(report)


def _run_nats(options: argparse.Namespace) -> dict[str, object]:
    rules, known = fields_from(ExampleRules, options), read_examples(options.examples, TargetRule())
    policy, tokenizer = load_policy(options.policy), _tokenizer_of(options.policy)
    networks = PolicyNetworks(policy.model, policy.encoder).to(options.device)
    settings = SupervisedSettings(device=options.device, batch_sequences=options.batch_sequences)
    report: dict[str, object] = {"policy": policy.description.name, "examples": known.head}
    for side in SIDES:
        examples = Examples(_thinned(known.workloads[side], options.most_workloads), tokenizer, rules)
        patterns = _patterns(options.patterns, examples.workloads)
        pool = build_pool(patterns, policy.encoder.kind, options.prompt_samples, options.device, options.processes)
        report[side] = held_out_nats(networks, pool, list(examples.fixed()), settings)
    return report


def fresh_networks(folder: Path, encoder: EncoderKind) -> PolicyNetworks:
    """A language model with a fresh encoder whose output has the size of the model's own embeddings."""
    model = load_language_model(folder)
    rms = float(model.model.embed_tokens.weight.detach().pow(2).mean().sqrt())
    return PolicyNetworks(model, MatrixEncoder(encoder, model.config.hidden_size, rms))


def _patterns(paths: Sequence[Path], workloads: Iterable[WorkloadTargets]) -> dict[str, Pattern]:
    """Patterns of the workloads by the name that the records give them, which may be a digest."""
    known = Patterns(paths)
    return {name: known.named(name) for name in sorted({workload.key.pattern for workload in workloads})}


def inputs_of(files: Iterable[Path]) -> dict[str, str]:
    """What a run depends on beside its settings: one that was stopped goes on with the same alone. Files of one name
    are told together, in their order."""
    digests: dict[str, list[str]] = {}
    for path in files:
        digests.setdefault(path.name, []).append(sha256(path.read_bytes()).hexdigest())
    return {name: " ".join(each) for name, each in digests.items()}


def _tokenizer_of(policy: Path) -> Tokenizer:
    return load_tokenizer(policy / "tokenizer.json")


def _thinned(workloads: Sequence[WorkloadTargets], most: int) -> list[WorkloadTargets]:
    """At most `most`, evenly chosen."""
    step = max(1, -(-len(workloads) // most))
    return list(workloads[::step])


def _is_legal(patterns: Mapping[str, Pattern], program: str, workload: WorkloadTargets) -> bool:
    key = workload.key
    circumstances = Circumstances(patterns[key.pattern], key.num_dense_cols, NUM_SMS)
    return refusal(program, key.operation, key.element_type, circumstances) is None


def _pretraining_report(folder: Path) -> dict[str, object]:
    path = folder / "pretraining.json"
    return {"pretraining": json.loads(path.read_text(encoding="utf-8"))} if path.is_file() else {}


def told(line: str) -> None:
    """To the log of the run."""
    print(line, file=sys.stderr, flush=True)
