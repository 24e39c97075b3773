"""Measures library routines, the tuner's kernels and a policy's samples side by side, through the evaluator itself.

    python -m benchmarks.measure.run                                  the examples and the generated matrices
    python -m benchmarks.measure.run --pack CORE.pack                 the core development matrices too
    python -m benchmarks.measure.run --pack CORE.pack --samples SAMPLES.jsonl    only what a policy wrote for, its samples beside the tuner;
                                                                      of permuted matrices or another conditioning as the file says
    python -m benchmarks.measure.run --pack ALL.pack --held-out       only the validation matrices outside the core suite
    python -m benchmarks.measure.run --layers                         pruned layers only, SpMM, dense cuBLAS in the same type beside it
    python -m benchmarks.measure.run --dlmc --pack ALL.pack           the same of DLMC's matrices
    python -m benchmarks.measure.run --dlmc --pack ALL.pack --sputnik SPUTNIK.so    Sputnik beside it (benchmarks.measure.sputnik)
    python -m benchmarks.measure.run --layers --plan spmv:float16:1:40 spmm:bfloat16:8:40       Llama's layers, in 16 bits

One result file a plan under benchmarks/results/<device>/, written anew after every matrix, so that a run that is cut off
leaves what it had; `--resume` goes on where such a run of the same commit stopped. Without a GPU the interpreter's
estimates go to a folder of their own and into no report. `python -m benchmarks.report` turns the files into REPORT.md,
the plots and the README's table.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.matrices.structure import vector_bytes
from benchmarks.matrices.suites import (
    Permuted,
    Source,
    core_sources,
    dlmc_sources,
    example_sources,
    generated_sources,
    held_out_sources,
    layer_sources,
    llama_sources,
)
from benchmarks.measure.contest import Contest, as_written, hold
from benchmarks.measure.dense import dense_times
from benchmarks.measure.invention import Kinship, digest, kinships
from benchmarks.measure.preparation import Prepared, Unprepared, Workshop, prepared_workloads
from benchmarks.measure.sputnik import Sputnik, SputnikUnusable, sputnik_times
from benchmarks.origin import ROOT, command, device_folder, source_commit, write_result
from benchmarks.report.results import how_sampled
from benchmarks.tuning.sweep import Plan, parse_plan
from services.evaluator.candidates import fill_numbers, parse_text
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.devices import device_process
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.settings import EvaluatorSettings
from services.generator.search.verdict import Contender, break_even
from sparsesmith.elements import ELEMENTS, WIDE_TYPES
from sparsesmith.errors import SparsesmithError
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import (
    Baselines,
    BaselineTiming,
    Candidate,
    DeviceDescription,
    Evaluation,
    FromFamily,
    MeasuredTiming,
    Passed,
    Timing,
    UserWritten,
    Workload,
)

PLANS = ("spmv:float32:1:32", "spmv:float64:1:32", "spmm:float32:8:24", "spmm:float32:32:24", "spmm:float32:128:24")
LAYER_PLANS = tuple(plan for plan in PLANS if plan.startswith("spmm"))
GENERATED_PRODUCTS = 3.3e8
"""Multiply-adds of a product up to which generated matrices are measured: all with 8 columns, the smaller with 32."""
SAMPLE_PREFIX = "policy"
SWITCH_INTERVAL_S = 0.0005
"""The thread that ranks the next workload must not keep the one that feeds the device waiting, as it would for 5 ms."""

KINSHIP_PROCESSES = 4
"""Each writes whole grids, which takes seconds."""

Row = dict[str, Any]
Kind = tuple[str, str, str, int]
"""Matrix, operation, element type, dense columns."""


@dataclass(frozen=True)
class Samples:
    """What a policy wrote."""

    programs: Mapping[Kind, list[str]] = field(default_factory=dict)
    how: Mapping[str, Any] = field(default_factory=dict)
    """The policy's name, and what is unusual: `permuted`, `conditioning`, `temperature`, `min_p`, `split`, `nats`."""
    kin: dict[Kind, "Future[dict[str, Kinship]]"] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Of their result file."""
        for unusual in ("permuted", "temperature"):
            if unusual in self.how:
                return f"samples_{unusual}"
        return f"samples_{self.how['conditioning']}" if "conditioning" in self.how else "samples"

    def source(self, source: Source) -> Source:
        """The matrix that they were written for."""
        return Permuted(source, self.how["permuted"]) if "permuted" in self.how else source


def main() -> None:
    options = _options()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    deadline = time.monotonic() + options.seconds
    settings, samples = EvaluatorSettings(), _read_samples(options.samples)
    commit = options.commit or source_commit()
    with (
        closing(device_process(settings)) as process,
        Compiler(max(1, (os.cpu_count() or 1) - 1), timeout_s=settings.compile_limit_s) as compiler,
        ProcessPoolExecutor(KINSHIP_PROCESSES, get_context("spawn")) if samples.programs else nullcontext() as kin,
    ):
        device = process.start()
        cost = CostModels(options.cost_model).on(device.name)
        workshop = Workshop(cost, compiler, device.architecture, settings.compile_limit_s)
        how: Row = {
            "commit": commit,
            "cost_model": "analytic" if isinstance(cost, AnalyticCost) else options.cost_model.name,
        }
        how |= samples.how
        if options.sputnik:
            if device.kind != "cuda":
                raise SystemExit(f"--sputnik: it is timed on a GPU; the device here is {device.name}")
            how["sputnik"] = options.sputnik.sources
        suites = {plan: _suite(options, plan, device, how, samples) for plan in map(parse_plan, options.plan)}
        work = [(source, plan) for plan, (sources, result) in suites.items() for source in result.wanting(sources)]
        if kin is not None:
            for source, plan in work:
                texts = samples.programs[source.name, *_kind_of(plan)]
                samples.kin[source.name, *_kind_of(plan)] = kin.submit(kinships, source, plan, texts)
        with closing(prepared_workloads(work, workshop)) as workloads:
            results = {plan: result for plan, (_, result) in suites.items()}
            _measure_all(workloads, samples, process, results, deadline, options.sputnik)
        if kin is not None:
            kin.shutdown(wait=False, cancel_futures=True)
        for _, result in suites.values():
            print(result.summary(), flush=True)


def _suite(
    options: argparse.Namespace, plan: Plan, device: DeviceDescription, how: Mapping[str, Any], samples: Samples
) -> tuple[list[Source], "SuiteResult"]:
    """The matrices of a plan, and its result file with what an earlier run has measured."""
    sources = _sources(options, plan)
    if options.samples:
        sources = [samples.source(each) for each in sources if (each.name, *_kind_of(plan)) in samples.programs]
    kind = samples.kind if options.samples else _suite_kind(options)
    result = SuiteResult(kind, options.out, plan, device, how, [source.name for source in sources])
    if options.resume:
        result.resume(options.resume)
    return sources, result


def _measure_all(
    workloads: Iterable[Prepared | Unprepared],
    samples: Samples,
    process: DeviceProcess,
    results: Mapping[Plan, "SuiteResult"],
    deadline: float,
    sputnik: Sputnik | None,
) -> None:
    """Row by row until the time is up; a workload that cannot be measured leaves a row that says why."""
    began = time.monotonic()
    for prepared in workloads:
        if time.monotonic() > deadline:
            return
        row = _measured(prepared, samples, process)
        if results[prepared.plan].compares_dense and isinstance(prepared, Prepared) and "failed" not in row:
            row |= _dense(prepared) | (_sputnik(sputnik, prepared) if sputnik else {})
        now = time.monotonic()
        row["wall_s"], began = now - began, now
        print(_line(row), flush=True)
        results[prepared.plan].add(row)


def _dense(prepared: Prepared) -> Row:
    """Of the dense product, or why there is none."""
    plan = prepared.plan
    try:
        return {"dense": dense_times(prepared.matrix.pattern, plan.num_dense_cols, plan.element_type)}
    except (RuntimeError, ImportError) as error:
        return {"dense_failed": str(error)[:500]}


def _sputnik(library: Sputnik, prepared: Prepared) -> Row:
    """What Sputnik takes, or why that is not known."""
    try:
        return {"sputnik": sputnik_times(library, prepared.matrix.pattern, prepared.plan.num_dense_cols)}
    except (RuntimeError, ImportError) as error:
        return {"sputnik_failed": str(error)[:500]}


def _measured(prepared: Prepared | Unprepared, samples: Samples, process: DeviceProcess) -> Row:
    if isinstance(prepared, Unprepared):
        return {"name": prepared.name, "failed": prepared.message}
    try:
        device = process.description()
        named = prepared.matrix.name, *_kind_of(prepared.plan)
        kin = samples.kin[named].result() if named in samples.kin else {}
        contest = hold(prepared, _samples_of(samples, prepared, device.num_sms), process, kin)
        row = measured_row(prepared, contest, device)
        if kin:
            row["policy"]["samples"] = [sample_row(each, contest, kin) for each in contest.policy]
        return row
    except SparsesmithError as error:
        return {"name": prepared.matrix.name, "failed": error.message}


class SuiteResult:
    """The result file of a plan."""

    def __init__(
        self, kind: str, out: Path, plan: Plan, device: DeviceDescription, how: Mapping[str, Any], names: list[str]
    ) -> None:
        self._file = out / device_folder(device) / _file_name(kind, plan)
        self._kind, self._plan, self._device, self._how, self._wanted = kind, plan, device, how, names
        self._rows: list[Row] = []

    @property
    def compares_dense(self) -> bool:
        """Whether the dense product is timed as well: of layers on a GPU, where cuBLAS is."""
        return self._kind in ("layers", "dlmc") and self._device.kind == "cuda"

    def resume(self, folder: Path) -> None:
        """Takes over the rows of an earlier run of this commit, if there are any, but not those that failed."""
        path = folder / device_folder(self._device) / self._file.name
        if not path.exists():
            return
        before = json.loads(path.read_text(encoding="utf-8"))
        asked = {**self._how, "candidates": self._plan.limit}
        if all(before.get(name) == value for name, value in asked.items()):
            self._rows = [row for row in before["rows"] if row["name"] in self._wanted and "failed" not in row]
            self._write()

    def wanting(self, sources: Iterable[Source]) -> Iterator[Source]:
        """Those that are not measured yet."""
        known = {row["name"] for row in self._rows}
        return (source for source in sources if source.name not in known)

    def add(self, row: Row) -> None:
        self._rows.append(row)
        self._write()

    def _write(self) -> None:
        write_result(self._file, self._content())

    def missing(self) -> list[str]:
        """Matrices of the suite that were not measured."""
        measured = {row["name"] for row in self._rows}
        return [name for name in self._wanted if name not in measured]

    def summary(self) -> str:
        missing = self.missing()
        lacks = f"; not reached: {', '.join(missing)}" if missing else ""
        return f"{self._file.stem}: {len(self._rows)} of {len(self._wanted)} matrices{lacks}"

    def _content(self) -> dict[str, Any]:
        order = {name: place for place, name in enumerate(self._wanted)}
        return {
            "kind": self._kind,
            "operation": self._plan.operation,
            "element_type": self._plan.element_type,
            "num_dense_cols": self._plan.num_dense_cols,
            "candidates": self._plan.limit,
            "device": self._device.model_dump(),
            **self._how,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "python": platform.python_version(),
            "cpu_cores": os.cpu_count(),
            "command": command("benchmarks.measure.run"),
            "missing": self.missing(),
            "rows": sorted(self._rows, key=lambda row: order[row["name"]]),
        }


def measured_row(prepared: Prepared, contest: Contest, device: DeviceDescription) -> Row:
    """What is kept of a contest; times in microseconds, warm (`us`) and cold (`cold_us`)."""
    matrix, plan, baselines = prepared.matrix, prepared.plan, contest.baselines
    element_bytes = ELEMENTS[plan.element_type].num_bytes
    default, best = baselines.default_routine(), baselines.best_routine()
    tuning_s = prepared.prepare_s + contest.search_s
    return {
        "name": matrix.name,
        "class": matrix.matrix_class,
        "split": matrix.split,
        "num_rows": matrix.pattern.num_rows,
        "num_cols": matrix.pattern.num_cols,
        "nnz": matrix.pattern.nnz,
        "structure": asdict(prepared.structure),
        "csr_bytes": Problem(prepared.workload, matrix.pattern).compared_bytes,
        "vector_bytes": vector_bytes(matrix.pattern, prepared.structure, element_bytes, plan.num_dense_cols),
        "default": _routine(default),
        "best_baseline": {"routine": best.routine, **_routine(best)},
        "routines": {each.routine: _routine(each) for each in baselines.routines},
        "families": _summary(contest.families, prepared.workload, baselines, device, tuning_s),
        "without_overlap": _times_of(contest.without_overlap),
        "policy": _summary(contest.policy, prepared.workload, baselines, device, tuning_s),
        "search": {
            "candidates": len(contest.families),
            "prepare_s": prepared.prepare_s,
            "search_s": contest.search_s,
            "device_s": sum(s for stage, s in contest.seconds.items() if stage != "compile_wait"),
            "winner_at_s": contest.winner_at_s,
            "as_good_at_s": contest.as_good_at_s,
            "stages_s": contest.seconds,
        },
    }


def _summary(
    evaluations: tuple[Evaluation, ...],
    workload: Workload,
    baselines: Baselines,
    device: DeviceDescription,
    tuning_s: float,
) -> dict[str, Any]:
    """Outcomes counted, and the fastest that passed."""
    outcomes = dict(sorted(Counter(each.outcome.outcome for each in evaluations).items()))
    passed = [(each, each.outcome) for each in evaluations if isinstance(each.outcome, Passed)]
    if not passed:
        return {"outcomes": outcomes, "best": None}
    evaluation, outcome = min(passed, key=lambda pair: pair[1].standing)
    origin = evaluation.candidate.origin
    written = {"family": origin.family, "parameters": origin.parameters} if isinstance(origin, FromFamily) else {}
    repaid = break_even(Contender(evaluation, outcome, baselines, device), tuning_s)
    return {
        "outcomes": outcomes,
        "best": {
            **written,
            **_times(outcome.timing),
            "storage_format": outcome.storage_format,
            "format_bytes": outcome.format_bytes,
            "launches": _num_launches(evaluation.candidate, workload),
            "registers": outcome.resources.registers,
            "conversion_ms": outcome.conversion_ms,
            "tuning_s": repaid.tuning_s,
            "products_against_best": repaid.products_against_best,
            "products_against_default": repaid.products_against_default,
        },
    }


def sample_row(evaluation: Evaluation, contest: Contest, kin: Mapping[str, Kinship]) -> Row:
    """What is kept of one sample. `us`: of the finals where `final`, else a brief time. `other_code`: its machine code is
    that of no family program that was compiled for the matrix: what the tuner graded, what the policy wrote of the
    families' texts, and the family program that is most like the sample."""
    written, outcome = as_written(evaluation.candidate), evaluation.outcome
    known = kin[written]
    row: Row = {"outcome": outcome.outcome, "text": digest(written), "masked": known.masked, "kind": known.kind}
    if not isinstance(outcome, Passed):
        return row
    timing, code = outcome.timing, contest.codes.get(evaluation.candidate.program, "")
    is_final = isinstance(timing, MeasuredTiming) and timing.is_final
    other = code not in contest.family_codes
    return row | {"us": timing.median_us, "final": is_final, "code": code, "other_code": other}


def _num_launches(candidate: Candidate, workload: Workload) -> int:
    program = parse_text(candidate.program, workload)
    assert isinstance(program, KernelProgram), "it passed"
    return len(program.launches)


def _times_of(evaluation: Evaluation | None) -> dict[str, Any] | None:
    """None where there is no such program, or where it did not pass."""
    passed = evaluation.outcome if evaluation else None
    return _times(passed.timing) if isinstance(passed, Passed) else None


def _routine(routine: BaselineTiming) -> dict[str, Any]:
    return {**_times(routine.timing), "preparation_ms": routine.preparation_ms}


def _times(timing: Timing) -> dict[str, float | bool | str | list[float]]:
    match timing:
        case MeasuredTiming():
            return {"us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us,
                    "cold_us": timing.cold_us, "stable": timing.stable,
                    "placements_us": list(timing.placements_us)}  # fmt: skip
        case _:
            return {"us": timing.median_us, "traffic_model": timing.traffic_model}


def _line(row: Row) -> str:
    if "failed" in row:
        return f"{row['name']:44s} FAILED {row['failed'][:200]}"
    best, baseline = row["families"]["best"], row["best_baseline"]
    ours = f"{best['us']:9.2f} {best['family']:22s} x{baseline['us'] / best['us']:.2f}" if best else "none passed"
    policy, search = row["policy"], row["search"]
    num_samples = sum(policy["outcomes"].values())
    sampled = ""
    if policy["best"]:
        passed = policy["outcomes"]["passed"]
        sampled = f" policy {passed}/{num_samples} x{baseline['us'] / policy['best']['us']:.2f}"
    spent = f"{search['candidates']} in {search['search_s']:.1f} s, device {search['device_s']:.1f}, all {row['wall_s']:.1f}"
    return f"{row['name']:44s} {row['nnz']:9d} {baseline['us']:9.2f} {baseline['routine']:22s} {ours}{sampled} {spent}"


def _sources(options: argparse.Namespace, plan: Plan) -> list[Source]:
    chosen: list[Source]
    if options.layers:
        chosen = layer_sources() if plan.element_type in WIDE_TYPES else llama_sources()
    elif options.dlmc:
        chosen = [*dlmc_sources(options.pack)]
    elif options.held_out:
        chosen = [*held_out_sources(options.pack)]
    else:
        chosen = [*(example_sources() if options.pack is None else core_sources(options.pack))]
    if not (options.held_out or options.layers or options.dlmc or options.no_generated):
        affordable = options.generated_products / plan.num_dense_cols
        chosen += [source for source in generated_sources() if source.nnz <= affordable]
    return [source for source in chosen if options.names is None or source.name in options.names]


def _samples_of(samples: Samples, prepared: Prepared, num_sms: int) -> tuple[Candidate, ...]:
    plan, problem = prepared.plan, Problem(prepared.workload, prepared.matrix.pattern)
    programs = samples.programs.get((prepared.matrix.name, *_kind_of(plan)), [])
    return candidates_of(programs, problem, num_sms)


def _kind_of(plan: Plan) -> tuple[str, str, int]:
    return plan.operation, plan.element_type, plan.num_dense_cols


def candidates_of(programs: Sequence[str], problem: Problem, num_sms: int) -> tuple[Candidate, ...]:
    """With their open numbers filled in, knobs at their first values; what cannot be filled in stays, and is refused."""
    written = [
        Candidate(candidate_id=f"{SAMPLE_PREFIX}-{number}", program=program, origin=UserWritten())
        for number, program in enumerate(programs)
    ]
    return tuple(each.candidate for each in fill_numbers(written, problem, num_sms))


def _read_samples(path: Path | None) -> Samples:
    lines: Iterable[str] = path.read_text(encoding="utf-8").splitlines() if path else ()
    parsed: list[Mapping[str, Any]] = [json.loads(line) for line in lines]
    first: Mapping[str, Any] = parsed[0] if parsed else {}
    how = how_sampled(first) | ({"nats": first["nats"]} if "nats" in first else {})
    programs = {(e["pattern"], e["operation"], e["element_type"], e["num_dense_cols"]): e["programs"] for e in parsed}
    return Samples(programs, how)


def _suite_kind(options: argparse.Namespace) -> str:
    """What the result file says that it is."""
    chosen = (kind for kind in ("samples", "held_out", "layers", "dlmc") if getattr(options, kind))
    return next(chosen, "suite")


def _library(path: str) -> Sputnik:
    try:
        return Sputnik(Path(path))
    except SputnikUnusable as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _file_name(kind: str, plan: Plan) -> str:
    columns = f"-{plan.num_dense_cols}" if plan.operation == "spmm" else ""
    return f"{kind.replace('_', '-')}-{plan.operation}{columns}-{plan.element_type}.json"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, help="pack of development patterns (benchmarks.matrices.matrix_pack)")
    parser.add_argument("--samples", type=Path, help="a policy's programs (benchmarks.learning.sample_policy)")
    parser.add_argument("--plan", nargs="+", help="operation:type:columns:candidates, in this order")
    parser.add_argument(
        "--candidates", type=int, help="most programs of the search, in place of the plans' own numbers"
    )
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200", help="missing: by estimates")
    parser.add_argument("--names", nargs="+", help="only these matrices")
    parser.add_argument("--seconds", type=float, default=3600, help="no new workload is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--resume", type=Path, help="results of this commit that are taken over instead of measured")
    parser.add_argument("--generated-products", type=float, default=GENERATED_PRODUCTS, help="nnz x columns at most")
    parser.add_argument("--no-generated", action="store_true")
    parser.add_argument("--sputnik", type=_library, help="library of benchmarks.measure.sputnik, timed beside each row")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--held-out", action="store_true", help="validation matrices outside the core suite, no others")
    only.add_argument("--layers", action="store_true", help="pruned layers made here, no others; Llama's in 16 bits")
    only.add_argument("--dlmc", action="store_true", help="DLMC's pruned layers that the pack has, no others")
    options = parser.parse_args()
    options.plan = options.plan or (LAYER_PLANS if options.layers or options.dlmc else PLANS)
    if (options.held_out or options.dlmc) and options.pack is None:
        parser.error(f"--{'dlmc' if options.dlmc else 'held-out'} needs --pack: a pack of all development patterns")
    if options.layers and options.pack is not None:
        parser.error("--layers takes no --pack: the layers are made here; those of a pack are measured by --dlmc")
    if options.candidates:
        options.plan = [f"{plan.rpartition(':')[0]}:{options.candidates}" for plan in options.plan]
    if options.sputnik:
        _check_plans_of_sputnik(parser, options)
    return options


def _check_plans_of_sputnik(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Ends the run where Sputnik has no such product, or none would be timed."""
    if not (options.layers or options.dlmc):
        parser.error("--sputnik goes with --layers or --dlmc: it is for pruned layers")
    for plan in map(parse_plan, options.plan):
        if (plan.operation, plan.element_type) != ("spmm", "float32"):
            parser.error(
                f"--sputnik: plan {plan.operation}:{plan.element_type}: it is compiled for spmm in float32 alone"
            )


if __name__ == "__main__":
    main()
