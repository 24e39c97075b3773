"""Courses of online learning as result files, tables and curves: which method pays at equal seconds?

    python -m benchmarks.learning.online keep STATE [--out benchmarks/results]     a course's folder -> results/DEVICE/online-ARM-SEED.json
    python -m benchmarks.learning.online table [benchmarks/results/h200]           arms beside the start and beside each other
    python -m benchmarks.learning.online plot [benchmarks/results/h200]            online.svg beside the results
    python -m benchmarks.learning.online packs FOLDER LESSONS PROBES [--variants 4]    packs of .npz: train side, with matrices made of each; core validation matrices
    python -m benchmarks.learning.online policies NAME --before FILES --after FILES    two policies by courses of the arm start -> results/DEVICE/policies-NAME.json

Courses are made by `python -m services.trainer.course learn` (docs/training.md). Intervals are 95 % over workloads, by bootstrap of
the paired differences; of courses that were judged once, over seeds too (benchmarks/report/online.py).
"""

import argparse
import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.matrices.split import SPLIT_FILE
from benchmarks.origin import RESULTS, folder_of, machine, source_commit, write_result
from benchmarks.report.intervals import mean_interval
from benchmarks.report.online import by_seed, course_table, seed_table, seeds_interval
from benchmarks.report.plots import BLACK, BLUE, GREEN, GREY, ORANGE, STYLE
from benchmarks.report.results import SHIPPED, policy_of
from services.trainer.course.arms import ARMS
from services.trainer.course.judging import Group, figures
from services.trainer.course.ledger import Ledger
from services.trainer.offline.sides import Patterns
from services.trainer.offline.variants import variants
from sparsesmith.matrix.pack import encode_pattern, write_pack

Json = dict[str, Any]
INTERPRETER = "PTX interpreter (times are estimates)"
STEP_S = 30
"""Between two counts of what was graded, seconds of learning."""
NNZ = (3_000, 600_000)
"""Of matrices to learn from."""
SHOWN = (
    ("mean_reward", "reward"),
    ("pass_at_1", "pass@1"),
    ("log_speed", "speed of single samples"),
    ("best_of_n", "best of n"),
)
RATIOS = ("log_speed", "best_of_n")
"""Binary logarithms of speeds over the best routine."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    keeping = commands.add_parser("keep")
    keeping.add_argument("state", type=Path)
    keeping.add_argument("--out", type=Path, default=RESULTS)
    keeping.add_argument(
        "--device", default="", help="name of the GPU; without: the interpreter, whose times are estimates"
    )
    keeping.add_argument("--gpus", type=int, default=1)
    keeping.add_argument("--commit", default="")
    keeping.add_argument("--name", default="", help="instead of ARM-SEED")
    keeping.set_defaults(run=lambda options: print(keep(options)))
    for name, run in (("table", table), ("plot", plot)):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path, nargs="?", default=RESULTS / "h200")
        command.set_defaults(run=lambda options, run=run: print(run(read(options.folder), options.folder)))
    packing = commands.add_parser("packs")
    packing.add_argument("matrices", type=Path)
    packing.add_argument("lessons", type=Path)
    packing.add_argument("probes", type=Path)
    packing.add_argument("--count", type=int, default=150, help="matrices of the train side at most")
    packing.add_argument("--variants", type=int, default=0, help="matrices made of each of them, learned from as well")
    packing.set_defaults(run=packs)
    comparing = commands.add_parser("policies")
    comparing.add_argument("name", help="of the comparison: what the policy after has and the one before has not")
    for side in ("before", "after"):
        comparing.add_argument(f"--{side}", type=Path, nargs="+", required=True, help="kept courses of the arm start")
    comparing.add_argument("--out", type=Path, default=RESULTS)
    comparing.set_defaults(
        run=lambda options: print(policies(options.name, options.before, options.after, options.out))
    )
    options = parser.parse_args()
    options.run(options)


def keep(options: argparse.Namespace) -> Path:
    """The result file of a course, as far as it came."""
    told, course = json.loads((options.state / "curves.json").read_text(encoding="utf-8")), _course(options.state)
    judged = [_by_workload(each) for each in told.pop("judged")]
    ledger = Ledger(options.state / "ledger.jsonl")
    graded = ledger.events("graded")
    result = {
        "kind": "online",
        "device": {"kind": "cuda", "name": options.device}
        if options.device
        else {"kind": "interpreter", "name": INTERPRETER},
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": "python -m services.trainer.course; python -m benchmarks.learning.online keep",
        "course": {key: value for key, value in course.items() if key not in ("lessons", "probes", "policy")},
        "policy": _name_of(Path(course["policy"])),
        "lesson_kinds": sorted({name.partition(":")[2] for name in course["lessons"]} - {""}),
        "lesson_matrices": len({name.partition(":")[0] for name in course["lessons"]}),
        "evaluators": next((each["evaluators"] for each in ledger.events("began")[::-1] if "evaluators" in each), None),
        "gpu_seconds": round(told["learned_s"] * options.gpus, 1) if options.device else 0.0,
        **told,
        "judged": judged,
        "graded_samples": _graded_within(graded, told["learned_s"]),
        "graded_within": {
            str(seconds): _graded_within(graded, seconds)
            for seconds in range(STEP_S, int(told["learned_s"]) + 1, STEP_S)
        },
        "asked_again": asked_again(graded),
        "against_start": against(judged[-1], judged[0]) if len(judged) > 1 and not judged[0]["at_s"] else {},
    }
    folder = options.out / (folder_of(options.device) if options.device else "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    name = options.name or f"{told['arm']}-{told['seed']}"
    path: Path = folder / f"online-{name}.json"
    write_result(path, result)
    return path


def _name_of(policy: Path) -> str:
    """As its description says; of one that is not there, its folder's."""
    description = policy / "policy.json"
    return str(json.loads(description.read_text(encoding="utf-8"))["name"]) if description.exists() else policy.name


def _graded_within(graded: Sequence[Mapping[str, Any]], seconds: float) -> int:
    """Samples."""
    return sum(len(each["rewards"]) for each in graded if each["at_s"] < seconds)


def policies(name: str, before: Sequence[Path], after: Sequence[Path], out: Path) -> Path:
    """Which of two policies writes the better programs, by the last judgements of courses that learned nothing."""
    sides = [[json.loads(path.read_text(encoding="utf-8")) for path in paths] for paths in (before, after)]
    first = sides[1][0]
    result = {
        "kind": "policies",
        "name": name,
        **{field: first[field] for field in ("device", "machine", "commit", "date")},
        "command": "python -m services.trainer.course learn STATE --arm start --judge end [--policy POLICY]; "
        "python -m benchmarks.learning.online policies NAME --before FILES --after FILES",
        "evaluators": first["evaluators"],
        "before": [_judgement_of(each) for each in sides[0]],
        "after": [_judgement_of(each) for each in sides[1]],
        "change": {
            figure: seeds_interval(*by_seed(figure, sides[1], sides[0]))
            for figure in ("pass_at_1", "log_speed", "best_of_n", "different")
        },
    }
    path = out / folder_of(first["device"]["name"]) / f"policies-{name}.json"
    write_result(path, result)
    return path


def _judgement_of(course: Json) -> Json:
    if course["arm"] != "start":
        raise SystemExit(f"arm {course['arm']}: a course that learned says nothing of a policy (expected: start)")
    figures, workloads = course["judgements"][-1]["figures"], course["judged"][-1]["workloads"]
    return {"commit": course["commit"], "seed": course["seed"], "figures": figures, "workloads": workloads}


def asked_again(graded: Sequence[Mapping[str, Any]]) -> Json:
    """Of the workloads that were learned from and asked more than once: their last groups against their first. An upper
    bound of what was learned of them, since workloads are asked again where the samples of a group differed. Groups that
    explore are compared with such, of courses that kept temperatures."""
    groups: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in graded:
        if each["rewards"]:
            groups[str(each["lesson"])].append(each)
    alike = [
        [each for each in found if each.get("temperature") == found[0].get("temperature")] for found in groups.values()
    ]
    pairs = [(found[0], found[-1]) for found in alike if len(found) > 1]
    told: Json = {"workloads": len(groups), "again": len(pairs)}
    for name in ("rewards", "log_speeds", "passed") if pairs else ():
        changes = [float(np.mean(last[name])) - float(np.mean(first[name])) for first, last in pairs]
        told[name] = mean_interval(changes).rounded()
    return told


def _course(state: Path) -> Json:
    found: Json = json.loads((state / "course.json").read_text(encoding="utf-8"))
    return found


def _by_workload(judgement: Mapping[str, Any]) -> Json:
    """Of each workload its means."""
    workloads = {}
    for fields in judgement["groups"]:
        read: Json = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
        group = Group(**read)
        if group.rewards:
            told = figures([group])
            names = ("pass_at_1", "mean_reward", "log_speed", "best_of_n", "different")
            workloads[group.lesson] = {name: round(getattr(told, name), 4) for name in names}
    return {"at_s": judgement["at_s"], "version": judgement["version"], "workloads": workloads}


def against(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Json:
    """Mean difference of each figure over the workloads that both have, with its interval."""
    common = sorted(ours["workloads"].keys() & theirs["workloads"].keys())
    return {
        name: mean_interval(
            [ours["workloads"][each][name] - theirs["workloads"][each][name] for each in common]
        ).rounded()
        for name in ("pass_at_1", "mean_reward", "log_speed", "best_of_n", "different")
        if common
    }


def read(folder: Path) -> list[Json]:
    """Courses of a device, by arm and seed."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("online-*.json"))]
    return [each for each in found if each.get("kind") == "online"]


def table(results: Sequence[Json], folder: Path) -> str:
    """An arm and seed a line, over its own start; then an arm a line, over pooled starts."""
    return "\n\n".join("\n".join(lines) for lines in (course_table(results), seed_table(results)) if lines)


def plot(results: Sequence[Json], folder: Path) -> str:
    """Judgements over seconds of learning: a row a commit, a panel a figure, a line an arm and length of course; points are
    seeds. The line of courses that were judged once begins at the mean of all that was judged before it learned, of their
    commit. Courses that did not begin at the policy that ships, or showed it another matrix or none, lie elsewhere, and are in
    the table alone."""
    import matplotlib
    from matplotlib.figure import Figure

    shown = [each for each in results if each["judgements"] and _begins_as_shipped(each)]
    learned = [each for each in shown if each["arm"] != "start"]
    commits = list(dict.fromkeys(each["commit"] for each in sorted(learned, key=lambda course: course["date"])))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(12, 2.6 * max(1, len(commits))), layout="constrained")
        rows = figure.subplots(max(1, len(commits)), len(SHOWN), squeeze=False, sharex=True, sharey="col")
        for panels, commit in zip(rows, commits, strict=False):
            _draw(panels, [each for each in shown if each["commit"] == commit])
            handles, labels = panels[-1].get_legend_handles_labels()
            panels[-1].legend(handles, labels, fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
            panels[0].set_ylabel(commit[:8])
        for panel, (name, label) in zip(rows[0], SHOWN, strict=True):
            panel.set_title(f"{label}\nover the best routine" if name in RATIOS else label, fontsize=9)
        for panel in rows[-1]:
            panel.set_xlabel("seconds of learning")
        path = folder / "online.svg"
        figure.savefig(path, metadata={"Date": None})
    return str(path)


def _begins_as_shipped(course: Json) -> bool:
    arm = ARMS.get(course["arm"])
    return policy_of(course) == SHIPPED and (arm is None or arm.encoder is None)


def _draw(panels: Sequence[Any], courses: Sequence[Json]) -> None:
    """Those of one commit."""
    lines: defaultdict[str, list[Json]] = defaultdict(list)
    for each in courses:
        if each["arm"] != "start":
            lines[f"{each['arm']}, {each['learned_s']:.0f} s"].append(each)
    for panel, (name, _) in zip(panels, SHOWN, strict=True):
        starts = [(at, value) for at, value in _judged(courses, name) if at == 0]
        for (line, seeds), (colour, mark) in zip(sorted(lines.items()), _looks(), strict=False):
            points = _judged(seeds, name)
            is_judged_once = all(len(each["judgements"]) == 1 for each in seeds)
            of_line = points + starts if is_judged_once else points
            seconds = sorted({at for at, _ in of_line})
            means = [float(np.mean([value for at, value in of_line if at == second])) for second in seconds]
            panel.plot(seconds, means, color=colour, linewidth=1)
            panel.plot(*zip(*points, strict=True), mark, color=colour, markersize=4, label=line)


def _judged(courses: Sequence[Json], name: str) -> list[tuple[float, float]]:
    """Seconds of learning and a figure, of each judgement; speeds instead of their logarithms."""
    judged = [(point["at_s"], point["figures"][name]) for each in courses for point in each["judgements"]]
    return sorted((at, 2**value if name in RATIOS else value) for at, value in judged)


def _looks() -> Iterator[tuple[str, str]]:
    """Colour and mark, which come again in other pairs."""
    colours = [BLUE, ORANGE, GREEN, BLACK, GREY, "#CC79A7", "#56B4E9", "#E69F00", "#F0E442", "#666666"]
    return zip(cycle(colours), cycle("os^Dvp*XPhd"), strict=False)


def packs(options: argparse.Namespace) -> None:
    """Matrices to learn from, in an order that says nothing of them; and the core validation ones."""
    with SPLIT_FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    train = [row["name"] for row in rows if row["split"] == "train" and NNZ[0] <= int(row["nnz"]) <= NNZ[1]]
    train.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    judged = [row["name"] for row in rows if row["split"] == "validation" and row["suite"] == "core"]
    there = Patterns([options.matrices])
    lessons = {name: there.named(name) for name in [name for name in train if name in there][: options.count]}
    for name, pattern in list(lessons.items()):
        lessons |= variants(name, pattern, options.variants, NNZ[1])
    probes = {name: there.named(name) for name in judged if name in there}
    for path, patterns in ((options.lessons, lessons), (options.probes, probes)):
        write_pack(path, {name: encode_pattern(pattern) for name, pattern in patterns.items()})
        print(f"{path}: {len(patterns)} patterns, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
