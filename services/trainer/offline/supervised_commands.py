"""The supervised stage and its evaluation from a shell; see `services.trainer.offline`."""

import argparse
import csv
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path

import scipy.sparse

from services.trainer.offline.judging import SamplingSettings, evaluate_policy
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.prompt_pool import build_pool
from services.trainer.offline.supervised import Examples, SupervisedSettings, train_supervised
from services.trainer.offline.targets import TargetRule, WorkloadTargets, read_records, workload_targets
from services.trainer.policy_model import PolicyNetworks, num_parameters
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.errors import InvalidProgram
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.policy.checkpoint import Policy, PolicyDescription, load_language_model, load_policy, save_policy
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.prompts.arrays import EncoderKind

VALIDATION_SHARE = 0.25


def add_sft(parser: argparse.ArgumentParser) -> None:
    """Options of the supervised stage."""
    _add_data(parser)
    parser.add_argument("--pretrained", type=Path, required=True, help="folder of the language model")
    parser.add_argument("--encoder", choices=("structural", "sinusoidal"), default="structural")
    parser.add_argument("--name", default="sparsesmith-30m")
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy")
    add_fields(parser, SupervisedSettings())
    add_fields(parser, TargetRule())
    parser.set_defaults(run=_run_sft)


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Options of the evaluation."""
    _add_data(parser)
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--side", choices=("train", "validation"), default="validation")
    parser.add_argument("--most-workloads", type=int, default=200)
    add_fields(parser, SamplingSettings())
    parser.set_defaults(run=_run_evaluate)


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="JSON lines of measured programs")
    parser.add_argument("--patterns", type=Path, required=True, help="a .pack, or a folder of SciPy .npz files")
    parser.add_argument("--split", type=Path, help="CSV with columns name, split; default: a quarter by name")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--prompt-samples", type=int, default=16, help="samples of each pattern held ready")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)


def _run_sft(options: argparse.Namespace) -> dict[str, object]:
    settings, rule = fields_from(SupervisedSettings, options), fields_from(TargetRule, options)
    train, validation = _workloads(options, rule)
    tokenizer = load_tokenizer(options.tokenizer)
    networks = _networks(options.pretrained, options.encoder)
    pool = build_pool(
        _patterns(options.patterns, [*train, *validation]),
        options.encoder,
        options.prompt_samples,
        settings.device,
        options.processes,
    )
    print(f"{num_parameters(networks)} parameters, {len(train)} + {len(validation)} workloads", file=sys.stderr)
    report = train_supervised(
        networks,
        pool,
        Examples(train, tokenizer, settings),
        Examples(validation, tokenizer, settings),
        settings,
        log=lambda line: print(line, file=sys.stderr, flush=True),
    )
    summary = {"settings": asdict(settings), "targets": asdict(rule), **asdict(report)}
    training = {**_pretraining_report(options.pretrained), "supervised": summary}
    description = PolicyDescription(name=options.name, encoder=options.encoder, training=training)
    save_policy(Policy(networks.model, networks.encoder, description), options.out)
    return summary


def _run_evaluate(options: argparse.Namespace) -> dict[str, object]:
    settings = fields_from(SamplingSettings, options)
    train, validation = _workloads(options, TargetRule())
    chosen = _thinned(train if options.side == "train" else validation, options.most_workloads)
    policy = load_policy(options.policy)
    networks = PolicyNetworks(policy.model, policy.encoder).to(settings.device)
    patterns = _patterns(options.patterns, chosen)
    pool = build_pool(patterns, policy.encoder.kind, options.prompt_samples, settings.device, options.processes)
    report = evaluate_policy(networks, pool, chosen, load_tokenizer(options.tokenizer), settings, _is_legal)
    return asdict(report)


def _networks(folder: Path, encoder: EncoderKind) -> PolicyNetworks:
    """A language model with a fresh encoder whose output has the size of the model's own embeddings."""
    model = load_language_model(folder)
    rms = float(model.model.embed_tokens.weight.detach().pow(2).mean().sqrt())
    return PolicyNetworks(model, MatrixEncoder(encoder, model.config.hidden_size, rms))


def _workloads(options: argparse.Namespace, rule: TargetRule) -> tuple[list[WorkloadTargets], list[WorkloadTargets]]:
    """Training and validation workloads."""
    records = (record for path in options.records for record in read_records(path))
    workloads = workload_targets(records, rule)
    sides = _split(options.split) if options.split else {}
    train = [each for each in workloads if _side(each.key.pattern, sides) == "train"]
    validation = [each for each in workloads if _side(each.key.pattern, sides) == "validation"]
    return train, validation


def _split(path: Path) -> dict[str, str]:
    with path.open(encoding="utf-8", newline="") as rows:
        return {row["name"]: row["split"] for row in csv.DictReader(rows)}


def _side(name: str, sides: Mapping[str, str]) -> str:
    share = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") / 2**32
    return sides.get(name, "validation" if share < VALIDATION_SHARE else "train")


def _patterns(path: Path, workloads: Iterable[WorkloadTargets]) -> dict[str, Pattern]:
    """Patterns of the workloads by the name that the records give them, which may be a digest."""
    wanted = {workload.key.pattern for workload in workloads}
    named = dict(read_pack(path)) if path.is_file() else {file.stem: _read_npz(file) for file in path.glob("*.npz")}
    found = {name: pattern for name, pattern in named.items() if name in wanted}
    if missing := wanted - found.keys():
        by_digest = {pattern.digest: pattern for pattern in named.values()}
        unknown = sorted(name for name in missing if name not in by_digest)
        if unknown:
            raise SystemExit(f"{path} holds no pattern {unknown[0]} ({len(unknown)} are missing)")
        found |= {name: by_digest[name] for name in missing}
    return found


def _read_npz(path: Path) -> Pattern:
    return pattern_from_scipy(scipy.sparse.load_npz(path))


def _thinned(workloads: Sequence[WorkloadTargets], most: int) -> list[WorkloadTargets]:
    """At most `most`, evenly chosen."""
    step = max(1, -(-len(workloads) // most))
    return list(workloads[::step])


def _is_legal(program: str, workload: WorkloadTargets) -> bool:
    from sparsesmith.program.program import parse_program

    try:
        parse_program(program, workload.key.operation, workload.key.element_type)
    except InvalidProgram:
        return False
    return True


def _pretraining_report(folder: Path) -> dict[str, object]:
    path = folder / "pretraining.json"
    return {"pretraining": json.loads(path.read_text(encoding="utf-8"))} if path.is_file() else {}
