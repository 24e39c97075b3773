"""Whether the evaluator can be fooled, and what its checks cost: hostile programs, and two versions of it in turns.

    python -m benchmarks.judging.judge --attacks FOLDER [--pack FILE --old TREE] [--parts programs costs searches]

- **programs**: every .cu file of the folders, graded like any candidate and then in finals, beside its honest twin. A
  folder's files say in their first line `// tries: ... || workload: ... || honest: ... || control: NAME`; those of
  tests/kernels what they say there.
- **costs**: the same jobs of 40 programs by the evaluator of this tree and by that of `--old`, in turns: candidates a
  second, the times of each program, and what it costs where 15 % of the programs of a job end the device's process.
- **searches**: whole searches (`benchmarks.measure.run`), in turns.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from statistics import fmean, geometric_mean, median
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.matrices.suites import Matrix, core_sources
from benchmarks.measure.throughput import first_programs
from benchmarks.origin import ROOT, command, device_folder, source_commit
from benchmarks.tuning.sweep import Plan, parse_plan
from services.evaluator.candidates import parse_candidate, parse_text
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.cores import num_cores
from services.evaluator.device import Inspected
from services.evaluator.devices import device_process, inspections_beside
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.inspection import Inspections, inspection
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.isolation.workbench import FinalTimes, Workbench
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationJob
from sparsesmith_proto.kernel import (
    Candidate,
    Crashed,
    DeviceDescription,
    MeasuredTiming,
    Mismatch,
    Passed,
    TimedOut,
    UserWritten,
    Workload,
)
from sparsesmith_proto.message import ElementType, Operation

FASTER = 0.97
"""A program that passes in less than this share of its honest twin's time gains from what it does."""
COMPILE_WAIT_S = 600
INSPECTION_WAIT_S = 30.0
CORPUS = ROOT / "tests" / "kernels"
CRASHING = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
                                const float* values, const float* x, float* y) {
  int row = blockIdx.x * 128 + threadIdx.x;
  if (row < num_rows) y[row + (NUMBERll << 40)] = x[row % num_cols];
}
"""
CRASHING_SHARE = 0.15


@dataclass(frozen=True)
class HostileProgram:
    """A program of a folder, and what an honest judge says of it."""

    name: str
    text: str
    operation: Operation
    element_type: ElementType
    honest: tuple[str, ...]
    control: str
    """Name of its honest twin; empty where it has none."""


def read_attacks(folder: Path) -> list[HostileProgram]:
    """Programs whose first line says all of it, with ` || ` between."""
    return [_attack(path) for path in sorted(folder.glob("*.cu"))]


def _attack(path: Path) -> HostileProgram:
    text = path.read_text(encoding="utf-8")
    said = dict(
        part.split(": ", 1) for part in text.split("\n", 1)[0].removeprefix("// ").split(" || ") if ": " in part
    )
    operation, element_type = said["workload"].split()
    return HostileProgram(
        path.stem,
        text,
        "spmm" if operation == "spmm" else "spmv",
        "float64" if element_type == "float64" else "float32",
        tuple(said["honest"].split("|")),
        said.get("control", ""),
    )


def read_corpus() -> list[HostileProgram]:
    """tests/kernels, with the outcomes expected on a GPU; beside one the interpreter looks on, whose refusals count."""
    programs = []
    for path in sorted(CORPUS.glob("*/*.cu")):
        text = path.read_text(encoding="utf-8")
        lines = [line.removeprefix("// ") for line in text.split("\n") if line.startswith("// ") and ": " in line]
        said = dict(reversed([line.split(": ", 1) for line in lines]))
        operation, element_type = said["workload"].split()
        refused = [outcome for outcome in said["expect"].split("|") if outcome != "passed"]
        programs.append(
            HostileProgram(
                f"corpus/{path.parent.name}/{path.stem}",
                text,
                "spmm" if operation == "spmm" else "spmv",
                "float64" if element_type == "float64" else "float32",
                tuple(dict.fromkeys([*said.get("on a GPU", said["expect"]).split("|"), *refused])),
                f"corpus/{said['twin']}" if "twin" in said else "",
            )
        )
    return programs


class Judge:
    """Grades programs on one random matrix for each workload, each with a final of its own."""

    def __init__(
        self, process: DeviceProcess, ahead: CompilationsAhead, inspections: Callable[[Problem], Inspections]
    ) -> None:
        self._process = process
        self._ahead = ahead
        self._inspections = inspections
        self._opened: tuple[Workload, Workbench] | None = None

    @cached_property
    def random(self) -> Pattern:
        return pattern_from_scipy(
            scipy.sparse.random(3000, 2501, 0.01, format="csr", random_state=np.random.default_rng(1))
        )

    @cached_property
    def banded(self) -> Pattern:
        return pattern_from_scipy(scipy.sparse.diags([1.0] * 5, [-40, -1, 0, 1, 40], shape=(3000, 2501), format="csr"))

    def pattern_of(self, program: HostileProgram) -> Pattern:
        needs_bands = "//@ format dia" in program.text or "index=u8" in program.text
        return self.banded if needs_bands else self.random

    def workload_of(self, program: HostileProgram) -> Workload:
        return Workload(
            pattern=self.pattern_of(program).digest,
            operation=program.operation,
            element_type=program.element_type,
            num_dense_cols=8 if program.operation == "spmm" else 1,
        )

    def judged(self, program: HostileProgram) -> dict[str, Any]:
        """Outcome, brief and final time, and the seconds it took."""
        workload, began = self.workload_of(program), time.monotonic()
        if self._opened is None or self._opened[0] != workload:
            self._opened = workload, self._process.open(Problem(workload, self.pattern_of(program)))
        workbench = self._opened[1]
        candidate = _candidate(program)
        outcome = evaluate_kernel(parse_candidate(candidate, workload), self._ahead.result, workbench, Race(1e12))
        row: dict[str, Any] = {"outcome": outcome.outcome, "message": getattr(outcome, "message", "")[:300]}
        if isinstance(outcome, Passed) and isinstance(outcome.timing, MeasuredTiming):
            row |= {"brief_us": outcome.timing.median_us, "worst_error": outcome.worst_error}
            row |= final_of(candidate.candidate_id, workbench)
            row |= self._inspected(program, Problem(workload, self.pattern_of(program)))
        return row | {"seconds": round(time.monotonic() - began, 3)}

    def _inspected(self, program: HostileProgram, problem: Problem) -> dict[str, Any]:
        """What the interpreter says of a program that passed, where it runs beside a GPU."""
        parsed = parse_text(program.text, problem.workload)
        assert isinstance(parsed, KernelProgram), parsed
        binary = self._ahead.result(parsed)
        assert isinstance(binary, Compiled), binary
        match inspection(self._inspections(problem), parsed, binary, INSPECTION_WAIT_S):
            case Crashed() | Mismatch() as refused:
                return {"outcome": refused.outcome, "message": refused.message[:300]}
            case Inspected(num_blocks=num_blocks, of_blocks=of_blocks):
                return {"inspected": round(num_blocks / max(of_blocks, 1), 4)}
            case None:
                return {}


def final_of(kernel_id: str, workbench: Workbench) -> dict[str, Any]:
    """The time of a final of its own, beside the library's default routine; or what it ends in."""
    final = workbench.retime([kernel_id], "cusparse_csr_default")
    if not isinstance(final, FinalTimes):
        return {"outcome": final.outcome, "message": final.message[:300]}
    timing = final.kernels[kernel_id]
    if isinstance(timing, Mismatch | Crashed | TimedOut):
        return {"outcome": timing.outcome, "message": timing.message[:300]}
    return {"final_us": timing.median_us}


def _candidate(program: HostileProgram) -> Candidate:
    return Candidate(candidate_id="candidate", program=program.text, origin=UserWritten())


def judged_programs(
    programs: Sequence[HostileProgram],
    process: DeviceProcess,
    compiler: Compiler,
    inspections: Callable[[Problem], Inspections],
) -> Iterator[dict[str, Any]]:
    """One row a program; twins are graded first."""
    with CompilationsAhead(compiler, process.description().architecture, COMPILE_WAIT_S) as ahead:
        judge = Judge(process, ahead, inspections)
        for program in programs:
            ahead.start([parse_candidate(_candidate(program), judge.workload_of(program))])
        controls = {program.control for program in programs}
        ordered = sorted(programs, key=lambda each: (each.operation, each.element_type, each.name not in controls))
        twins: dict[str, dict[str, Any]] = {}
        for program in ordered:
            row = {"name": program.name, "honest": program.honest, **judge.judged(program)}
            twins[program.name] = row
            row |= _beside(row, twins.get(program.control, {}))
            row["is_honest"] = row["outcome"] in program.honest
            yield row


def _beside(row: Mapping[str, Any], twin: Mapping[str, Any]) -> dict[str, Any]:
    shares = [row[key] / twin[key] for key in ("brief_us", "final_us") if key in row and key in twin]
    return {"of_twin": round(min(shares), 3), "gains": min(shares) < FASTER} if shares else {}


class Trees:
    """Two versions of the source, each grading the same jobs in an evaluator of its own, in turns."""

    def __init__(self, old: Path, pack: Path, folder: Path) -> None:
        self._trees = {"old": old, "new": ROOT}
        self._pack = pack
        self._folder = folder

    def in_turns(self, asked: Mapping[str, Any], turns: int) -> dict[str, list[list[dict[str, Any]]]]:
        """The rounds of each run, by version."""
        jobs = self._folder / "jobs.json"
        jobs.write_text(json.dumps({"pack": str(self._pack), **asked}), encoding="utf-8")
        runs: dict[str, list[list[dict[str, Any]]]] = {"old": [], "new": []}
        for turn in range(turns):
            for version in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                out = self._folder / "out.json"
                driver = Path(__file__).with_name("judged_jobs.py")
                self._run(version, [str(driver), str(jobs), str(out)])
                runs[version].append(json.loads(out.read_text(encoding="utf-8")))
        return runs

    def searches(self, names: Sequence[str], plan: str, turns: int) -> dict[str, list[dict[str, Any]]]:
        """Result rows of `benchmarks.measure.run` on these matrices, by version."""
        rows: dict[str, list[dict[str, Any]]] = {"old": [], "new": []}
        for turn in range(turns):
            for version in ("old", "new") if turn % 2 == 0 else ("new", "old"):
                out = self._folder / f"{version}-{turn}"
                has_rooms = (self._trees[version] / "benchmarks" / "measure").exists()
                module = "benchmarks.measure.run" if has_rooms else "benchmarks.run"
                words = ["-m", module, "--pack", str(self._pack), "--no-generated", "--plan", plan]
                self._run(version, [*words, "--names", *names, "--commit", version, "--out", str(out)])
                for file in out.glob("*/*.json"):
                    rows[version] += json.loads(file.read_text(encoding="utf-8"))["rows"]
        return rows

    def _run(self, version: str, words: Sequence[str]) -> None:
        tree = self._trees[version]
        # The tree's own code first; what else is on the path (installed packages) stays, this tree's code does not.
        inherited = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        others = [entry for entry in inherited if not Path(entry).resolve().is_relative_to(ROOT)]
        path = os.pathsep.join([str(tree), str(tree / "proto"), *others])
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run([sys.executable, *words], cwd=tree, env=environment, check=True)


def _asked(matrices: Sequence[Matrix], rounds: Sequence[Sequence[EvaluationJob]]) -> dict[str, Any]:
    warm_up = rounds[0][0].model_copy(update={"job_id": "warm-up"})
    return {
        "matrices": [matrix.name for matrix in matrices],
        "warm_up": _message(warm_up),
        "rounds": [[_message(job) for job in jobs] for jobs in rounds],
    }


def _message(job: EvaluationJob) -> dict[str, Any]:
    """What both versions read: fields that one of them does not know are left at their defaults."""
    told = {name: value for name, value in job.model_dump(mode="json").items() if name in _SHARED_FIELDS}
    told["candidates"] = [
        {name: value for name, value in each.items() if value not in ({}, None)} for each in told["candidates"]
    ]
    return told


_SHARED_FIELDS = ("job_id", "workload", "candidates", "budget_s")


def _rate(rounds: Sequence[Mapping[str, Any]]) -> float:
    """Candidates a second."""
    number = sum(len(report["outcomes"]) for each in rounds for report in each["reports"])
    return float(number / sum(each["seconds"] for each in rounds))


def costs(
    trees: Trees, matrices: Sequence[Matrix], jobs: Sequence[EvaluationJob], num_spoiled: int, turns: int
) -> dict[str, Any]:
    """Candidates a second without and with crashes, and the times of those that passed in every run."""
    few = jobs[:: max(1, len(jobs) // num_spoiled)][:num_spoiled]
    few_again = [job.model_copy(update={"job_id": f"again-{job.job_id}"}) for job in few]
    runs = trees.in_turns(_asked(matrices, [jobs, few_again, [with_crashes(job) for job in few]]), turns)
    whole = {version: [rounds[:1] for rounds in each] for version, each in runs.items()}
    rates = {version: [round(_rate(rounds), 2) for rounds in each] for version, each in whole.items()}
    return {
        "candidates": sum(len(job.candidates) for job in jobs),
        "a_second": rates,
        "share_of_old": round(fmean(rates["new"]) / fmean(rates["old"]), 4),
        "times": compared_times(whole),
        "crashes": {version: [_crash_cost(rounds[1:]) for rounds in each] for version, each in runs.items()},
    }


def compared_times(runs: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]]) -> dict[str, Any]:
    """Of programs that passed in every run, the medians over the runs: new / old."""
    by_version = {version: _times(each) for version, each in runs.items()}
    shared = [key for key in by_version["old"] if key in by_version["new"]]
    ratios = {key: median(by_version["new"][key]) / median(by_version["old"][key]) for key in shared}
    refused = sorted(set(by_version["old"]) - set(by_version["new"]))
    brief = [ratio for key, ratio in ratios.items() if not key.endswith("final")]
    final = [ratio for key, ratio in ratios.items() if key.endswith("final")]
    return {
        "num_matrices": len({key.split("/")[0] for key in shared}),
        "brief_geometric_mean": round(geometric_mean(brief), 4) if brief else None,
        "final_geometric_mean": round(geometric_mean(final), 4) if final else None,
        "passed_by_old_only": refused,
        "passed_by_new_only": sorted(set(by_version["new"]) - set(by_version["old"])),
    }


def _times(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {}
    for rounds in runs:
        for report in (report for each in rounds for report in each["reports"]):
            for number, outcome in enumerate(report["outcomes"]):
                if outcome["outcome"] == "passed":
                    kind = "final" if outcome["timing"].get("is_final") else "brief"
                    times.setdefault(f"{report['job_id']}/{number}/{kind}", []).append(outcome["timing"]["median_us"])
    return times


def with_crashes(job: EvaluationJob) -> EvaluationJob:
    """Every seventh program or so is one that ends the device's process; no two of them alike."""
    candidates = list(job.candidates)
    step = round(1 / CRASHING_SHARE)
    for number in range(0, len(candidates), step):
        text = CRASHING.replace("NUMBER", str(1 + number))
        candidates[number] = Candidate(candidate_id=f"crash-{number}", program=text, origin=UserWritten())
    return job.model_copy(update={"job_id": f"crashes-{job.job_id}", "candidates": tuple(candidates)})


def _crash_cost(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    whole, spoiled = rounds
    outcomes = [outcome["outcome"] for report in spoiled["reports"] for outcome in report["outcomes"]]
    num_crashed = outcomes.count("crashed")
    return {
        "a_second_without": round(_rate([whole]), 2),
        "a_second_with": round(_rate([spoiled]), 2),
        "crashed": num_crashed,
        "candidates": len(outcomes),
        "seconds_a_crash": round((spoiled["seconds"] - whole["seconds"]) / max(num_crashed, 1), 3),
    }


def searches(trees: Trees, names: Sequence[str], plan: str, turns: int) -> dict[str, Any]:
    rows = trees.searches(names, plan, turns)
    rates = {
        version: round(
            sum(row["search"]["candidates"] for row in each) / sum(row["search"]["search_s"] for row in each), 2
        )
        for version, each in rows.items()
    }
    return {"plan": plan, "a_second": rates, "share_of_old": round(rates["new"] / rates["old"], 4)}


def main() -> None:
    options = _options()
    result: dict[str, Any] = {
        "kind": "judge",
        "commit": options.commit or source_commit(),
        "old": options.old_commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cpu_cores": os.cpu_count(),
        "command": command("benchmarks.judging.judge"),
    }
    device: DeviceDescription | None = None
    for part in options.parts:
        began = time.monotonic()
        if part == "programs":
            for rows, device in _programs_part(options):
                result |= {"device": device.model_dump(), "programs": rows, "summary": summary(rows)}
                _write(result, options.out, device)
        else:
            device = device or _device_here()
            result |= {"device": device.model_dump(), part: _compared_part(part, options)}
        result.setdefault("seconds", {})[part] = round(time.monotonic() - began, 1)
        print(part, json.dumps(result.get("summary") if part == "programs" else result[part])[:3000], flush=True)
        _write(result, options.out, device or _device_here())


def _device_here() -> DeviceDescription:
    with closing(device_process(EvaluatorSettings())) as process:
        return process.start()


def _write(result: Mapping[str, Any], out: Path, device: DeviceDescription) -> None:
    """After every program and every part: a run that is cut off leaves what it had."""
    folder = out / device_folder(device)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "judge.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _programs_part(options: argparse.Namespace) -> Iterator[tuple[list[dict[str, Any]], DeviceDescription]]:
    """The rows so far, after every program."""
    programs = [each for folder in options.attacks for each in read_attacks(folder)]
    corpus = read_corpus() if options.corpus else []
    controls = {program.control for program in corpus}
    programs += [each for each in corpus if options.corpus == "all" or each.control or each.name in controls]
    settings, rows = EvaluatorSettings(), list[dict[str, Any]]()
    end = time.monotonic() + options.seconds
    num_compilers = max(1, num_cores() - 1)
    with (
        closing(device_process(settings)) as process,
        Compiler(num_compilers, timeout_s=settings.compile_limit_s) as compiler,
        inspections_beside(settings, process.start(), waits=True) as inspections,
    ):
        device = process.description()
        for row in judged_programs(programs, process, compiler, inspections):
            rows.append(row)
            times = " ".join(f"{key}={row[key]:.2f}" for key in ("brief_us", "final_us", "of_twin") if key in row)
            print(
                f"{'ok ' if row['is_honest'] else 'BAD'} {row['name']}: {row['outcome']} {times} {row['message'][:160]}",
                flush=True,
            )
            yield rows, device
            if time.monotonic() > end:
                return


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What was judged wrongly, and what gained by it."""
    return {
        "programs": len(rows),
        "otherwise": [row["name"] for row in rows if not row["is_honest"]],
        "faster_than_honest": [row["name"] for row in rows if not row["is_honest"] and row.get("gains")],
    }


def _compared_part(part: str, options: argparse.Namespace) -> dict[str, Any]:
    plan = parse_plan(options.plan)
    matrices = _matrices(options)
    with tempfile.TemporaryDirectory() as folder:
        trees = Trees(options.old.resolve(), options.pack.resolve(), Path(folder))
        if part == "costs":
            return costs(trees, matrices, _jobs(matrices, plan), options.spoiled, options.turns)
        return searches(trees, [matrix.name for matrix in matrices], options.search_plan, 1)


def _jobs(matrices: Sequence[Matrix], plan: Plan) -> list[EvaluationJob]:
    cost = CostModels(ROOT / "models" / "cost-h200").expected()
    return [first_programs(matrix, plan, cost) for matrix in matrices]


def _matrices(options: argparse.Namespace) -> list[Matrix]:
    """Spread evenly over those of the pack that are small enough."""
    found = [matrix for source in core_sources(options.pack) if (matrix := source.load()).pattern.nnz <= 1e6]
    return found[:: max(1, len(found) // options.matrices)][: options.matrices]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = ("programs", "costs", "searches")
    parser.add_argument("--parts", nargs="+", choices=parts, default=["programs"])
    parser.add_argument("--attacks", type=Path, nargs="*", default=[], help="folders of hostile programs")
    parser.add_argument("--corpus", choices=("twins", "all"), help="tests/kernels as well: those with a twin, or all")
    parser.add_argument("--pack", type=Path, help="pack of development patterns")
    parser.add_argument("--old", type=Path, help="source tree that the others are compared with")
    parser.add_argument("--old-commit", default="")
    parser.add_argument("--plan", default="spmv:float32:1:40", help="operation:type:columns:candidates of a job")
    parser.add_argument("--search-plan", default="spmv:float32:1:32")
    parser.add_argument("--matrices", type=int, default=20)
    parser.add_argument("--spoiled", type=int, default=3, help="jobs that are graded with crashes as well")
    parser.add_argument("--turns", type=int, default=2, help="runs of each version")
    parser.add_argument("--seconds", type=float, default=3600, help="no program is begun after this time")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
