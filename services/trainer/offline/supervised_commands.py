"""The supervised stage and its evaluation from a shell; see `services.trainer.offline`."""

import argparse
import csv
import json
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path

import scipy.sparse

from services.trainer.offline.judging import SamplingSettings, evaluate_policy
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.prompt_pool import build_pool
from services.trainer.offline.records import NUM_SMS, NUMBERS, Record, Rendering, read_records
from services.trainer.offline.supervised import Examples, SupervisedSettings, train_supervised
from services.trainer.offline.targets import TargetRule, WorkloadTargets, workload_targets
from services.trainer.offline.text_files import open_text
from services.trainer.policy_model import PolicyNetworks, num_parameters
from services.trainer.tokenizer import load_tokenizer
from sparsesmith.errors import InvalidProgram
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.policy.checkpoint import Policy, PolicyDescription, load_language_model, load_policy, save_policy
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from sparsesmith.program.program import parse_program
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


def add_programs(parser: argparse.ArgumentParser) -> None:
    """Options of the stage that writes programs out, for the tokenizer to learn from and to pretrain on."""
    _add_records(parser)
    parser.add_argument("--side", choices=("train", "validation"), default="train")
    parser.add_argument("--most", type=int, default=4000, help="programs at most, families in equal parts")
    parser.add_argument("--out", type=Path, required=True, help="JSON lines with `program` and `family`")
    parser.set_defaults(run=_run_programs)


def _run_programs(options: argparse.Namespace) -> dict[str, object]:
    sides = sides_in(options.split)
    by_family: dict[str, dict[str, None]] = defaultdict(dict)
    for record in rendered_records(options):
        if side_of(record["pattern"], sides) == options.side:
            by_family[record.get("family", "")].setdefault(record["program"])
    chosen = in_equal_parts({family: list(programs) for family, programs in by_family.items()}, options.most)
    with open_text(options.out, "w") as lines:
        for family, program in chosen:
            lines.write(json.dumps({"family": family, "program": program}) + "\n")
    return {"programs": len(chosen), "families": Counter(family for family, _ in chosen)}


def in_equal_parts(programs: Mapping[str, Sequence[str]], most: int) -> list[tuple[str, str]]:
    """At most `most` programs with their families, drawn evenly; a family that has few leaves its part to others."""
    draw, chosen = random.Random(0), list[tuple[str, str]]()
    for left, (family, texts) in zip(
        range(len(programs), 0, -1), sorted(programs.items(), key=lambda pair: len(pair[1])), strict=True
    ):
        part = min(len(texts), (most - len(chosen)) // left)
        chosen += [(family, text) for text in draw.sample(texts, part)]
    draw.shuffle(chosen)
    return chosen


def add_evaluate(parser: argparse.ArgumentParser) -> None:
    """Options of the evaluation."""
    _add_data(parser)
    parser.add_argument("--policy", type=Path, required=True, help="folder of the policy")
    parser.add_argument("--side", choices=("train", "validation"), default="validation")
    parser.add_argument("--most-workloads", type=int, default=200)
    add_fields(parser, SamplingSettings())
    parser.set_defaults(run=_run_evaluate)


def _add_data(parser: argparse.ArgumentParser) -> None:
    _add_records(parser)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--prompt-samples", type=int, default=16, help="samples of each pattern held ready")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)


def _add_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="JSON lines of measured programs")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--split", type=Path, help="CSV with columns name, split; default: a quarter by name")
    parser.add_argument(
        "--numbers",
        choices=NUMBERS,
        default="open",
        help="what follows from a matrix: as a number, or by name",
    )


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
    is_legal = partial(_is_legal, patterns)
    report = evaluate_policy(networks, pool, chosen, load_tokenizer(options.tokenizer), settings, is_legal)
    return asdict(report)


def _networks(folder: Path, encoder: EncoderKind) -> PolicyNetworks:
    """A language model with a fresh encoder whose output has the size of the model's own embeddings."""
    model = load_language_model(folder)
    rms = float(model.model.embed_tokens.weight.detach().pow(2).mean().sqrt())
    return PolicyNetworks(model, MatrixEncoder(encoder, model.config.hidden_size, rms))


def _workloads(options: argparse.Namespace, rule: TargetRule) -> tuple[list[WorkloadTargets], list[WorkloadTargets]]:
    """Training and validation workloads."""
    workloads = workload_targets(rendered_records(options), rule)
    sides = sides_in(options.split)
    train = [each for each in workloads if side_of(each.key.pattern, sides) == "train"]
    validation = [each for each in workloads if side_of(each.key.pattern, sides) == "validation"]
    return train, validation


def rendered_records(options: argparse.Namespace) -> list[Record]:
    """Of all files, with their programs; what is left out is told."""
    records = [record for path in options.records for record in read_records(path)]
    rendering = Rendering(options.numbers, Patterns(options.patterns).named)
    rendered = list(rendering(records))
    for reason, count in rendering.left_out.most_common():
        print(f"{count} of {len(records)} records are left out: {reason}", file=sys.stderr)
    for family, count in rendering.kept_plain.most_common():
        print(f"{count} programs of {family} keep their numbers: the facts give others today", file=sys.stderr)
    return rendered


def sides_in(path: Path | None) -> dict[str, str]:
    """Matrix -> side, of a CSV with columns name, split. None: nothing is named."""
    if path is None:
        return {}
    with path.open(encoding="utf-8", newline="") as rows:
        return {row["name"]: row["split"] for row in csv.DictReader(rows)}


def side_of(name: str, sides: Mapping[str, str]) -> str:
    """`train`, `validation` or what the split says; a quarter of what it does not name is validation."""
    share = int.from_bytes(blake2b(name.encode(), digest_size=4).digest(), "big") / 2**32
    return sides.get(name, "validation" if share < VALIDATION_SHARE else "train")


class Patterns:
    """Of .packs and folders of .npz files, by name or digest."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._named = {name: pattern for path in paths if path.is_file() for name, pattern in read_pack(path)}
        self._files = {file.stem: file for path in paths if path.is_dir() for file in path.glob("*.npz")}

    def __contains__(self, name: str) -> bool:
        """By name alone."""
        return name in self._named or name in self._files

    def named(self, name: str) -> Pattern:
        """Raises SystemExit where it is not there."""
        if name not in self._named and name in self._files:
            self._named[name] = pattern_from_scipy(scipy.sparse.load_npz(self._files[name]))
        if name in self._named:
            return self._named[name]
        if name not in self._by_digest:
            raise SystemExit(f"no pattern {name} in {', '.join(map(str, self._paths))}")
        return self._by_digest[name]

    @cached_property
    def _by_digest(self) -> dict[str, Pattern]:
        return {pattern.digest: pattern for pattern in map(self.named, {*self._named, *self._files})}


def _patterns(paths: Sequence[Path], workloads: Iterable[WorkloadTargets]) -> dict[str, Pattern]:
    """Patterns of the workloads by the name that the records give them, which may be a digest."""
    known = Patterns(paths)
    return {name: known.named(name) for name in sorted({workload.key.pattern for workload in workloads})}


def _thinned(workloads: Sequence[WorkloadTargets], most: int) -> list[WorkloadTargets]:
    """At most `most`, evenly chosen."""
    step = max(1, -(-len(workloads) // most))
    return list(workloads[::step])


def _is_legal(patterns: Mapping[str, Pattern], program: str, workload: WorkloadTargets) -> bool:
    key = workload.key
    circumstances = Circumstances(patterns[key.pattern], key.num_dense_cols, NUM_SMS)
    try:
        bound = bind_numbers(program, {}, circumstances, key.operation, key.element_type)
        parse_program(bound.text, key.operation, key.element_type)
    except InvalidProgram:
        return False
    return True


def _pretraining_report(folder: Path) -> dict[str, object]:
    path = folder / "pretraining.json"
    return {"pretraining": json.loads(path.read_text(encoding="utf-8"))} if path.is_file() else {}
