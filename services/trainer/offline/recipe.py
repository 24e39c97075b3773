"""From committed records to an evaluated policy with one command: all offline stages, in one folder.

A stage that ended with these arguments and these files is not run again, so that a recipe which was stopped goes on
where it was; training itself goes on inside its stage (`saved_run`). Where a stage runs, all later ones run, too.
"""

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RECORDS = tuple(
    ROOT / "benchmarks" / "records" / f"{name}.jsonl.xz" for name in ("h200", "h200-validation", "h200-grids")
)
HARVESTS = tuple(ROOT / "benchmarks" / "records" / f"{name}.jsonl.xz" for name in ("h200-harvest", "h200-harvest-more"))
COST_MODEL = ROOT / "models" / "cost-h200"
SPLIT = ROOT / "benchmarks" / "split.csv"
OWN_SOURCES = ("sparsesmith", "services", "tests/kernels/good")
"""What the repository holds of device code, where no corpus is given."""

RunStage = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Stage:
    """One stage with its arguments."""

    name: str
    arguments: tuple[str, ...]
    report: str
    """File in the folder that its report goes to."""


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Options of the recipe."""
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    parser.add_argument("--out", type=Path, required=True, help="folder of the policy")
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--records", type=Path, nargs="+", default=list(RECORDS))
    parser.add_argument("--split", type=Path, default=SPLIT)
    parser.add_argument("--harvest", type=Path, nargs="*", default=list(HARVESTS), help="packed harvests")
    parser.add_argument(
        "--corpus", type=Path, nargs="*", default=[], help="sources; default: what the repository holds"
    )
    parser.add_argument(
        "--variants", type=int, default=0, help="of each matrix of the train side, taught by the cost model (`teach`)"
    )
    parser.add_argument(
        "--columns",
        type=int,
        default=0,
        help="products with a drawn number of dense columns, taught of each matrix of the train side and its variants",
    )
    parser.add_argument("--until", help="the last stage to run: `pack` ends before what wants a GPU")
    parser.add_argument("--device", default="cpu")
    for name in ("tokenizer", "pretrain", "sft", "critic", "evaluate"):
        parser.add_argument(f"--{name}", default="", metavar="OPTIONS", help="more options of the stage, as one word")
    parser.set_defaults(run=run_recipe)


def run_recipe(options: argparse.Namespace) -> dict[str, object]:
    """Runs what has not ended; where each report lies."""
    from services.trainer.offline.commands import run_stage

    options.work.mkdir(parents=True, exist_ok=True)
    reports: dict[str, object] = {}
    stale = False
    for stage in stages(options):
        path = options.work / stage.report
        stale = stale or not _is_done(path, stage)
        if stale:
            print(f"{stage.name} {shlex.join(stage.arguments)}", file=sys.stderr, flush=True)
            began = time.monotonic()
            path.unlink(missing_ok=True)
            report = run_stage([stage.name, *stage.arguments])
            seconds = round(time.monotonic() - began, 1)
            ended = {"arguments": stage.arguments, "files": _files(stage), "seconds": seconds, "report": report}
            path.write_text(json.dumps(ended, indent=1) + "\n", encoding="utf-8")
        reports[stage.name] = str(path)
        if stage.name == options.until:
            break
    return reports


def stages(options: argparse.Namespace) -> list[Stage]:
    """In order."""
    work: Path = options.work
    corpus, tokens, tokenizer = work / "corpus", work / "tokens", work / "tokenizer.json"
    programs, examples, pretrained = work / "programs.jsonl.xz", work / "examples.jsonl.xz", work / "pretrained"
    patterns = ["--patterns", *options.patterns]
    records = ["--records", *options.records, *patterns, "--split", options.split]
    sources = options.corpus or [ROOT / name for name in OWN_SOURCES]
    # A small collection has few files: a larger share is held out, so that there is something to measure on.
    share = "0.02" if options.corpus else "0.1"
    data, device = ["--examples", examples, *patterns], ["--device", options.device]
    made, taught = work / "taught.pack", work / "taught.jsonl.xz"
    teaching = _stage(
        "teach",
        [*patterns, "--split", options.split, "--cost-model", COST_MODEL],
        ["--variants", str(options.variants), "--columns", str(options.columns)],
        ["--out-patterns", made, "--out", taught],
    )
    is_taught = options.variants > 0 or options.columns > 0
    learned = [*data, made, "--taught", taught] if is_taught else data
    return [
        _stage("corpus", sources, ["--held-out-share", share, "--out", corpus]),
        _stage("programs", records, ["--out", programs]),
        _stage(
            "tokenizer",
            ["--corpus", corpus, "--programs", programs, "--phrases", "3000", "--phrase-characters", "60"],
            ["--out", tokenizer, *shlex.split(options.tokenizer)],
        ),
        _stage("examples", records, [*(["--harvest", *options.harvest] if options.harvest else []), "--out", examples]),
        *([teaching] if is_taught else []),
        _stage("pack", ["--corpus", corpus, "--programs", programs], ["--tokenizer", tokenizer, "--out", tokens]),
        _stage(
            "pretrain",
            ["--tokens", tokens, "--save", work / "pretrain.pt", "--out", pretrained],
            [*device, *shlex.split(options.pretrain)],
        ),
        _stage(
            "sft",
            [*learned, "--tokenizer", tokenizer, "--pretrained", pretrained, "--save", work / "sft.pt"],
            ["--out", options.out, *device, *shlex.split(options.sft)],
        ),
        _stage("critic", [*data, "--policy", options.out], [*device, *shlex.split(options.critic)]),
        _stage("nats", [*data, "--policy", options.out], device),
        _stage("evaluate", [*data, "--policy", options.out], [*device, *shlex.split(options.evaluate)]),
    ]


def _stage(name: str, *arguments: Sequence[Path | str]) -> Stage:
    return Stage(name, tuple(_word(each) for part in arguments for each in part), f"{name}.report.json")


def _word(argument: Path | str) -> str:
    """Paths below the current folder without it: what one machine began another may go on with."""
    here = Path.cwd()
    if isinstance(argument, Path) and argument.is_relative_to(here):
        return str(argument.relative_to(here))
    return str(argument)


def _is_done(path: Path, stage: Stage) -> bool:
    if not path.is_file():
        return False
    ended = json.loads(path.read_text(encoding="utf-8"))
    return bool(ended["arguments"] == list(stage.arguments) and ended["files"] == _files(stage))


def _files(stage: Stage) -> dict[str, str]:
    """SHA-256 of the files that a stage reads; folders count by their name."""
    named = zip(("", *stage.arguments), stage.arguments, strict=False)
    paths = [Path(word) for option, word in named if option not in ("--out", "--save")]
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in paths if path.is_file()}
