"""Single edits of the tuner's best programs: the policy's, and those of random mutators, of the same parents.

    python -m benchmarks.learning.edits PACK... [--policy FOLDER] [--side train|validation] [--workloads 24] [--samples 24]
        [--parents 3] [--unreported] [--seconds S] [--out benchmarks/results]

The tuner searches each workload as in production; its best program and others within 5 % of it are parents. The policy is
shown each with its report, as `refine` with the writer `policy` shows it (what follows from the matrix by name: of how many
is told as `named_parents`), and samples so many children; with `--unreported` as many more of parents that are shown
without their reports; as many times a random mutator changes it once. All are graded on the evaluator's device, and what
passed is timed at length in turns with its parent (far behind: briefly). A text that came twice counts twice and is graded
once; a copy of the parent passes, gains nothing, and differs in nothing. Numbers that a child leaves open are filled in
first, knobs by their first values.

Shares are of all samples. Intervals are 95 % over matrices, by bootstrap of each matrix's own share. Kinds of workload and
classes of nonzeros take turns. Without a GPU times are estimates, and the result is no statement about speed. The file is
written after every workload; none is begun after `--seconds`.
"""

import argparse
import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.learning.conditioning import unreported
from benchmarks.learning.serving import serving_sampler
from benchmarks.matrices.suites import core_sources
from benchmarks.measure.contest import hold
from benchmarks.measure.preparation import Prepared, Unprepared, Workshop, prepared_workloads
from benchmarks.origin import RESULTS, ROOT, command, device_folder, machine, source_commit, write_result
from benchmarks.report.intervals import mean_interval, resampled
from benchmarks.tuning.beside_parent import Judge
from benchmarks.tuning.harvest import PLANS, parent_line, parent_of, problem_of, workloads
from benchmarks.tuning.harvested import Line
from benchmarks.tuning.sweep import parse_plan
from services.evaluator.candidates import fill_numbers, parse_candidates
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.settings import EvaluatorSettings
from services.generator.orders import KernelOrder
from services.generator.policy.engine import InvalidPrompt
from services.generator.policy.sampling import Descent, PolicySampler
from services.generator.settings import GeneratorSettings
from services.generator.task import TuningTask
from services.generator.writing.texts import program_in, program_shown_of
from services.trainer.offline.edits import changed_lines
from sparsesmith.errors import SparsesmithError
from sparsesmith.mutation import Subject, random_mutant
from sparsesmith.operations import Problem
from sparsesmith.prompts.refinement import refinement_parent
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.api import TuningOptions
from sparsesmith_proto.kernel import Candidate, DeviceDescription, Evaluation, Parent, Passed, UserWritten

NEAR_BEST = 1.05
"""Times the best time, within which a program is a parent."""
ARMS = ("policy", "unreported", "mutators")
"""Of these `unreported` is there where it was asked for."""
COMPARED = ("policy", "mutators")
COPY = "copy"
"""The outcome of a child that is its parent."""
UNGRADED: Line = {"outcome": "ungraded"}
"""Its compiler had no time for it."""
GAINS = (1.02, 1.05)
QUANTILES = (0.1, 0.5, 0.9, 0.99)

Row = dict[str, Any]


def main() -> None:
    options = _options()
    until, settings = time.monotonic() + options.seconds, EvaluatorSettings()
    with (
        closing(device_process(settings)) as process,
        Compiler(max(1, (os.cpu_count() or 1) - 2), timeout_s=settings.compile_limit_s) as compiler,
    ):
        device = process.start()
        judge = Judge(process, compiler, settings.compile_limit_s)
        asyncio.run(_with_engine(options, judge, device, until))


async def _with_engine(options: argparse.Namespace, judge: Judge, device: DeviceDescription, until: float) -> None:
    settings = GeneratorSettings(
        policy_dir=options.policy,
        max_prompt_tokens=options.prompt_tokens,
        engine_max_samples=options.engine_samples,
        engine_gpu_memory_fraction=options.engine_memory,
        architecture=device.architecture,
        num_sms=device.num_sms,
        copy_bandwidth_gbs=device.copy_bandwidth_gbs,
    )
    async with serving_sampler(settings) as sampler:
        await measured(options, sampler, judge, device, until)


async def measured(
    options: argparse.Namespace, sampler: PolicySampler, judge: Judge, device: DeviceDescription, until: float
) -> Row:
    """The result, which is written, too."""
    core = {each.name for pack in options.pack for each in core_sources(pack)}
    plans = [parse_plan(each) for each in options.plan]
    work = workloads(
        options.pack,
        plans,
        options.workloads,
        lambda entry: entry.split == options.side and entry.name in core and entry.nnz <= options.max_nnz,
    )
    cost = CostModels(ROOT / "models" / "cost-h200").on(device.name)
    workshop = Workshop(cost, judge.compiler, device.architecture, judge.compile_limit_s)
    rows, failed = list[Row](), dict[str, str]()
    with closing(prepared_workloads(work, workshop)) as prepared:
        while time.monotonic() < until:
            each = await asyncio.to_thread(next, prepared, None)
            if each is None:
                break
            if isinstance(each, Unprepared):
                failed[each.name] = each.message
                continue
            try:
                rows.append(await edited(each, sampler, judge, options))
            except SparsesmithError as error:
                failed[each.matrix.name] = error.message
                continue
            _write(options, device, rows, failed)
            print(rows[-1]["matrix"], rows[-1]["workload"], rows[-1]["seconds"], flush=True)
    return _write(options, device, rows, failed)


@dataclass(frozen=True, eq=False)
class _Parent:
    """One of the tuner's programs, with what is needed to change it."""

    number: int
    evaluation: Evaluation
    subject: Subject


async def edited(prepared: Prepared, sampler: PolicySampler, judge: Judge, options: argparse.Namespace) -> Row:
    """Everything of one workload."""
    began, matrix = time.monotonic(), prepared.matrix
    problem, line = Problem(prepared.workload, matrix.pattern), problem_of(matrix.name, prepared.plan)
    contest = await asyncio.to_thread(hold, prepared, (), judge.process)
    best_routine = contest.baselines.best_routine().timing
    row: Row = {
        "matrix": matrix.name,
        "class": matrix.matrix_class,
        "nnz": matrix.pattern.nnz,
        "workload": f"{prepared.plan.operation} {prepared.plan.element_type} {prepared.plan.num_dense_cols}",
        "parents": [],
    }
    for number, evaluation in enumerate(near_best(contest.families, options.parents)):
        told = parent_line(line, number, evaluation, best_routine)
        parent = _Parent(number, evaluation, parent_of(told, matrix.pattern).subject)
        sampling = time.monotonic()
        num_sms = judge.process.description().num_sms
        program = program_shown_of(evaluation.candidate, evaluation.outcome, problem, num_sms)
        shown = refinement_parent(program, evaluation.outcome, best_routine.median_us)
        texts, refused = await _by_policy(parent, shown, prepared, sampler, options.samples)
        entry: Row = {name: told[name] for name in ("family", "tuned_us", "best_baseline_us", "program")}
        entry["is_named"] = program != parent.subject.text
        entry["sampling_s"] = round(time.monotonic() - sampling, 2)
        if refused:
            row["parents"].append(entry | {"refused": refused})
            continue
        children = {"policy": texts, "mutators": _by_mutators(parent, options.samples)}
        if options.unreported:
            children["unreported"], _ = await _by_policy(parent, unreported(shown), prepared, sampler, options.samples)
        entry |= await asyncio.to_thread(_graded, parent.subject.text, children, problem, judge)
        row["parents"].append(entry)
    return row | {"seconds": round(time.monotonic() - began, 2)}


def near_best(evaluations: Iterable[Evaluation], most: int) -> list[Evaluation]:
    """The fastest that passed and those within 5 % of it, each text once."""
    passed = [(each.outcome.standing, each) for each in evaluations if isinstance(each.outcome, Passed)]
    ranked = [each for _, each in sorted(passed, key=lambda pair: pair[0])]
    texts: dict[str, Evaluation] = {}
    for each in ranked:
        if _us(each) <= NEAR_BEST * _us(ranked[0]):
            texts.setdefault(each.candidate.program, each)
    return list(texts.values())[:most]


def _us(evaluation: Evaluation) -> float:
    assert isinstance(evaluation.outcome, Passed)
    return evaluation.outcome.timing.median_us


async def _by_policy(
    parent: _Parent, shown: Parent, prepared: Prepared, sampler: PolicySampler, samples: int
) -> tuple[list[str], str]:
    """What the policy writes, and why it cannot be shown the parent."""
    plan, workload = prepared.plan, prepared.workload
    asked = TuningOptions(
        operation=plan.operation, element_type=plan.element_type, num_dense_cols=plan.num_dense_cols, search="refine"
    )
    problem = Problem(workload, prepared.matrix.pattern)
    task = TuningTask("edits", "edits", KernelOrder(workload=workload, options=asked), problem)
    group = sampler.group(
        task, f"e{parent.number}", samples, Descent(parent.evaluation.candidate.candidate_id, shown, 1)
    )
    try:
        candidates = await asyncio.gather(*(group.sampled(f"e{number}") for number in range(samples)))
    except InvalidPrompt as error:
        return [], str(error)
    return [each.program for each in candidates], ""


def _by_mutators(parent: _Parent, samples: int) -> list[str]:
    """One change each; fewer where there is nothing to change."""
    found = (random_mutant(parent.subject, str(number)) for number in range(samples))
    return [each.text for each in found if each is not None]


def _graded(parent: str, children: Mapping[str, Sequence[str]], problem: Problem, judge: Judge) -> Row:
    """Of each arm its different children: how often each came, and what became of it. All arms are graded together."""
    texts = dict.fromkeys(chain.from_iterable(children.values()))
    names = {text: f"child-{number}" for number, text in enumerate(texts)}
    wanted = [Candidate(candidate_id=name, program=text, origin=UserWritten()) for text, name in names.items()]
    filled = fill_numbers(wanted, problem, judge.process.description().num_sms)
    plain = {each.candidate.candidate_id: program_in(each.candidate.program) for each in filled}
    copies = {name for name, text in plain.items() if text == program_in(parent)}
    parsed = [each for each in parse_candidates(filled, problem) if each.candidate.candidate_id not in copies]
    found: dict[str, Line] = dict(judge.graded(parent, parsed, problem))
    if parsed and not found:
        return {"refused": "it did not pass again"}
    found |= {name: {"outcome": COPY, "gain": 1.0, "other_code": False} for name in copies}
    return {
        arm: [
            {"times": times, **_kept(found.get(names[text], UNGRADED), parent, plain[names[text]])}
            for text, times in Counter(texts).items()
        ]
        for arm, texts in children.items()
    }


def _kept(found: Line, parent: str, child: str) -> Line:
    """With the lines that were changed, where they gained something."""
    gained = found.get("gain", 0) >= GAINS[0]
    return found | ({"lines": changed_lines(parent, child)} if gained else {})


def summary(rows: Sequence[Row]) -> Row:
    """All arms over all workloads and by kind of workload, and how policy and mutators compare."""
    kinds: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        kinds[row["workload"]].append(row)
    return {
        "all": _compared(rows),
        **({name: _compared(kinds[name]) for name in sorted(kinds)} if len(kinds) > 1 else {}),
    }


def _compared(rows: Sequence[Row]) -> Row:
    by_matrix = _by_matrix(rows)
    found: Row = {arm: _shares(rows, arm) for arm in ARMS if arm in COMPARED or _has(by_matrix, arm)}
    both = [arms for arms in by_matrix.values() if all(arms[arm] for arm in COMPARED)]
    if both:
        found["faster_2_over_mutators"] = _ratio(
            *([_share(arms[arm], _is_faster) for arms in both] for arm in COMPARED)
        )
    return found


def _has(by_matrix: Mapping[str, Mapping[str, Sequence[Line]]], arm: str) -> bool:
    return any(arms[arm] for arms in by_matrix.values())


def _by_matrix(rows: Sequence[Row]) -> dict[str, dict[str, list[Line]]]:
    """Matrix -> arm -> samples, a text that came twice twice."""
    found: dict[str, dict[str, list[Line]]] = {}
    for row in rows:
        arms = found.setdefault(row["matrix"], {arm: [] for arm in ARMS})
        for parent in row["parents"]:
            for arm in ARMS:
                arms[arm] += [child for child in parent.get(arm, ()) for _ in range(child["times"])]
    return found


def _shares(rows: Sequence[Row], arm: str) -> Row:
    of_matrices = [arms[arm] for arms in _by_matrix(rows).values() if arms[arm]]
    samples = [child for children in of_matrices for child in children]
    if not samples:
        return {"samples": 0}
    gains = [child["gain"] for child in samples if "gain" in child]
    different = [child["gain"] for child in samples if "gain" in child and child["outcome"] != COPY]
    return {
        "samples": len(samples),
        "matrices": len(of_matrices),
        "passed": mean_interval([_share(each, _has_passed) for each in of_matrices]).rounded(),
        "differs": mean_interval([_share(each, _differs) for each in of_matrices]).rounded(),
        "other_code": mean_interval([_share(each, _is_other_code) for each in of_matrices]).rounded(),
        "faster_2": mean_interval([_share(each, _is_faster) for each in of_matrices]).rounded(),
        "faster_5": mean_interval([_share(each, _is_faster_by_5) for each in of_matrices]).rounded(),
        "gain_quantiles": _quantiles(gains),
        "gain_quantiles_of_different": _quantiles(different),
        "best_gain": max(gains, default=None),
        "outcomes": dict(Counter(child["outcome"] for child in samples)),
    }


def _share(samples: Sequence[Line], holds: Callable[[Line], bool]) -> float:
    return sum(map(holds, samples)) / len(samples)


def _has_passed(child: Line) -> bool:
    return child["outcome"] in ("passed", COPY)


def _differs(child: Line) -> bool:
    """It passed, and is another program than its parent."""
    return bool(child["outcome"] == "passed")


def _is_other_code(child: Line) -> bool:
    return bool(child.get("other_code", False))


def _is_faster(child: Line) -> bool:
    return bool(child.get("gain", 0) >= GAINS[0])


def _is_faster_by_5(child: Line) -> bool:
    return bool(child.get("gain", 0) >= GAINS[1])


def _quantiles(gains: Sequence[float]) -> dict[str, float]:
    if not gains:
        return {}
    return {f"{share:g}": round(float(np.quantile(gains, share)), 4) for share in QUANTILES}


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """Of mean shares, and 95 % of resampled ones, those without the mutators' left out; None where all are."""
    own, other = np.array(ours), np.array(theirs)
    if not other.any():
        return {"ratio": None, "low": None, "high": None}

    def ratios(drawn: NDArray[np.int64]) -> NDArray[np.float64]:
        above, below = own[drawn].mean(axis=1), other[drawn].mean(axis=1)
        quotients: NDArray[np.float64] = above[below > 0] / below[below > 0]
        return quotients

    low, high = resampled(len(own), ratios)
    return {"ratio": round(float(own.mean() / other.mean()), 3), "low": round(low, 3), "high": round(high, 3)}


def _write(
    options: argparse.Namespace, device: DeviceDescription, rows: Sequence[Row], failed: Mapping[str, str]
) -> Row:
    result = {
        "kind": "edits",
        "times": "measured" if device.kind == "cuda" else "estimated",
        "device": device.model_dump(mode="json"),
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.learning.edits"),
        "policy": options.policy.name,
        "side": options.side,
        "samples_a_parent": options.samples,
        "workloads": len(rows),
        "parents": sum(len(row["parents"]) for row in rows),
        "named_parents": sum(parent["is_named"] for row in rows for parent in row["parents"]),
        "refused_parents": sum("refused" in parent for row in rows for parent in row["parents"]),
        "summary": summary(rows),
        "rows": list(rows),
        "failed": dict(failed),
    }
    file = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / f"edits-{options.side}.json"
    write_result(file, result)
    return result


def _options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path, nargs="+")
    parser.add_argument("--policy", type=Path, default=ROOT / "models" / "sparsesmith-28m")
    parser.add_argument("--side", choices=("train", "validation"), default="train", help="of the split")
    parser.add_argument("--plan", nargs="+", default=PLANS, help="operation:type:columns:candidates of the tuner")
    parser.add_argument("--workloads", type=int, default=24)
    parser.add_argument("--max-nnz", type=int, default=20_000_000)
    parser.add_argument("--parents", type=int, default=3, help="of a workload")
    parser.add_argument("--samples", type=int, default=24, help="of a parent and arm")
    parser.add_argument("--unreported", action="store_true", help="the policy is also shown parents without reports")
    parser.add_argument("--prompt-tokens", type=int, default=1536, help="longest prompt")
    parser.add_argument("--engine-samples", type=int, default=256, help="that are written at a time")
    parser.add_argument("--engine-memory", type=float, default=0.1, help="share of the GPU's memory")
    parser.add_argument("--seconds", type=float, default=24 * 3600, help="no workload is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
