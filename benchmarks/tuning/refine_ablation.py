"""What telling a writer more is worth: the loop of `refine` with its time alone, with a profile, and with suggestions.

    python -m benchmarks.tuning.refine_ablation --endpoint https://.../v1 --model NAME [--key-file FILE] [--tasks dot,sum,...]
        [--preset fsr] [--candidates 40] [--seconds 120] [--all-seconds S] [--device auto] [--out benchmarks/results]
    python -m benchmarks.tuning.refine_ablation --policy FOLDER --preset fsr --at-once 30     # a model that vLLM serves in here
    python -m benchmarks.tuning.refine_ablation --writer mutate --candidates 24        # no model, which is told nothing: the control
    python -m benchmarks.tuning.refine_ablation --summarize FILE       # a result's figures of the model once more, from its rows

Each task at one size (the trial axes on the interpreter, where times are estimates of a model and no statement about a device; the
middle published size on a GPU), each level with the same budget of candidates and seconds, the levels in another order for each
task. A row is written as soon as it is there: a run that is cut off is taken up where it ended, on the same device and commit with
the same writer. Every search begins with the same first programs; the gain is over the fastest of those. With `--at-once` many
searches share a model that answers many questions at a time; programs are still graded one batch after another, and a search's
seconds stand still while all that it has out waits for its turn (`waited_s`; the model may write meanwhile). A model that runs
on the GPU that grades disturbs what is timed: its writer's gains are rough, whether its programs pass is not.
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from benchmarks.learning.serving import serving_sampler
from benchmarks.measure.tasks import Tasks
from benchmarks.origin import RESULTS, device_folder, machine, source_commit, write_result
from benchmarks.report.results import geometric_mean, pass_at
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from services.generator.orders import KernelOrder
from services.generator.policy.folder import PolicyFolder
from services.generator.search import STRATEGIES, Sources, Standing
from services.generator.search.grading import GradingLimits, graded
from services.generator.search.standing import source_of
from services.generator.settings import GeneratorSettings
from services.generator.task import TuningTask
from services.generator.writing import Writers
from services.generator.writing.endpoint import Endpoint, EndpointOptions
from services.generator.writing.model import Model, ModelOptions
from services.generator.writing.text import ChatPrompts, TextModel
from sparsesmith.errors import SparsesmithError
from sparsesmith.operations import Problem
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.prompts.brief import Gpu
from sparsesmith_proto.api import Budget, Feedback, Refinement, TuningOptions
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import DeviceDescription, Evaluation, Passed, Workload, Written

TASKS = (
    "dot",
    "sum",
    "softmax",
    "transpose",
    "layer_norm",
    "histogram",
    "prefix_sum",
    "cross_entropy",
    "conv2d",
    "top_k",
)
LEVELS: tuple[Feedback, ...] = get_args(Feedback)
PATIENCE_S = 600.0
"""For the first grades of a search, behind the start of a device."""


class Turn:
    """The device of this machine: one job at a time, those of all searches in the order in which they came."""

    def __init__(self, grade: Callable[[EvaluationJob], EvaluationReport]) -> None:
        self.grade = grade
        self.lock = asyncio.Lock()


@dataclass
class Waits:
    """How long a search waited for the jobs of others: nothing of it was graded, something could have been."""

    num_waiting: int = 0
    num_graded: int = 0
    _before_s: float = 0.0
    _since: float | None = None

    @property
    def seconds(self) -> float:
        """Until now."""
        return self._before_s + (0.0 if self._since is None else time.monotonic() - self._since)

    def change(self, waiting: int, graded: int) -> None:
        """In the numbers of jobs that wait and that are graded."""
        self._before_s, self._since = self.seconds, None
        self.num_waiting += waiting
        self.num_graded += graded
        if self.num_waiting and not self.num_graded:
            self._since = time.monotonic()


@dataclass(frozen=True)
class Here:
    """Evaluations of one search. See Evaluations."""

    turn: Turn
    waits: Waits

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        """A job that is given up before its turn waits no longer; one that is given up later keeps the device until it
        ends, as nothing stops it."""
        self.waits.change(waiting=1, graded=0)
        try:
            await self.turn.lock.acquire()
        finally:
            self.waits.change(waiting=-1, graded=0)
        self.waits.change(waiting=0, graded=1)
        grading = asyncio.ensure_future(asyncio.to_thread(self.turn.grade, job))
        grading.add_done_callback(self._ended)
        try:
            return await asyncio.shield(grading)
        finally:
            self.waits.change(waiting=0, graded=-1)

    def _ended(self, grading: "asyncio.Future[EvaluationReport]") -> None:
        """An error of a job that was given up is nobody's any more."""
        self.turn.lock.release()
        if not grading.cancelled():
            grading.exception()


@dataclass(frozen=True)
class PatientTask(TuningTask):
    """Its seconds stand still while it waits for others."""

    waits: Waits = field(default_factory=Waits)

    @property
    def elapsed_s(self) -> float:
        return super().elapsed_s - self.waits.seconds


def main() -> None:
    options = _parsed()
    if options.summarize is not None:
        summarize(options.summarize)
        return
    settings = EvaluatorSettings(device=options.device)
    with (
        closing(device_process(settings)) as process,
        Compiler(max(2, num_cores() - 1), timeout_s=settings.compile_limit_s) as compiler,
    ):
        process.start()
        device, grader = process.description(), Grader(process, compiler)
        path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "refine-ablation.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        ablation = _Ablation(grader, device, options, path, _rows_before(path, device, options))
        asyncio.run(ablation.run())
    told_of = told(ablation.rows, device, options)
    print(json.dumps({name: value for name, value in told_of.items() if name != "rows"}, indent=1))


@dataclass
class _Ablation:
    """All searches of a run."""

    grader: Grader
    device: DeviceDescription
    options: argparse.Namespace
    path: Path
    rows: list[dict[str, Any]]

    async def run(self) -> None:
        """No search is begun later than `--all-seconds` after the model serves."""
        turn = Turn(lambda job: self.grader.grade(job, Tasks()))
        places = asyncio.Semaphore(self.options.at_once)
        async with _model(self.options) as model:
            end = time.monotonic() + self.options.all_seconds

            async def one(task: str, axes: Mapping[str, int], level: Feedback) -> None:
                async with places:
                    if time.monotonic() < end:
                        self._keep(await refined(turn, self.device, task, axes, level, model, self.options))

            known = [(row["task"], row["feedback"]) for row in self.rows]
            asked = [each for each in _asked(self.options, self.device) if (each[0], each[2]) not in known]
            await asyncio.gather(*(one(*each) for each in asked))

    def _keep(self, row: dict[str, Any]) -> None:
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        result = told(self.rows, self.device, self.options)
        write_result(self.path, result)


@asynccontextmanager
async def _model(options: argparse.Namespace) -> AsyncIterator[Model | None]:
    """Who is asked; None where the writer is no model."""
    if options.endpoint:
        endpoint = Endpoint(EndpointOptions(url=options.endpoint, model=options.model, key_file=options.key_file))
        try:
            yield endpoint
        finally:
            await endpoint.close()
    elif options.policy is not None:
        async with served(options) as model:
            yield model
    else:
        yield None


@asynccontextmanager
async def served(options: argparse.Namespace) -> AsyncIterator[Model]:
    """The language model of a folder, as the generator serves it. Raises Unavailable where it does not start."""
    settings = GeneratorSettings(
        policy_dir=options.policy,
        policy_kind="text",
        max_prompt_tokens=options.prompt_tokens,
        max_program_tokens=options.program_tokens,
        engine_max_samples=options.engine_samples,
        engine_gpu_memory_fraction=options.engine_memory,
    )
    async with serving_sampler(settings) as sampler:
        assert isinstance(sampler.writer, ChatPrompts)
        name = PolicyFolder(options.policy, "text").name
        yield TextModel(sampler, sampler.writer, name, options.questions)


async def refined(
    turn: Turn,
    device: DeviceDescription,
    name: str,
    axes: Mapping[str, int],
    level: Feedback,
    model: Model | None,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """One task at one level."""
    task = _task(name, axes, level, options)
    standing, found = Standing(), list[Evaluation]()
    row: dict[str, Any] = {"task": name, "axes": dict(axes), "feedback": level}
    gpu = Gpu(device.architecture, num_sms=device.num_sms, copy_bandwidth_gbs=device.copy_bandwidth_gbs)
    writers = Writers([] if model is None else [model], ModelOptions(gpu, options.history_characters))
    batches = STRATEGIES["refine"](task, Sources(None, 8, 16, writers=writers), options.candidates, standing)
    try:
        async for report in graded(batches, task, Here(turn, task.waits), GradingLimits(2, PATIENCE_S), standing.lost):
            standing.add(report)
            found += report.evaluations
    except SparsesmithError as error:
        row |= {"failed": error.message}
    first_us, best_us = _best_us(found, first=True), _best_us(found, first=False)
    sources = [source.model_dump(mode="json") for source in standing.sources()]
    written = written_of(found)
    row |= {"first_us": first_us, "best_us": best_us, "seconds": round(task.elapsed_s, 2), "sources": sources}
    row |= {"waited_s": round(task.waits.seconds, 2)}
    return row | ({"written": written} if written else {})


def written_of(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """What became of a model's answers that were graded, and of those from the task's words alone; empty where none was.
    What a tuner found beyond the first values of an answer's knobs is not the model's."""
    outcomes = [(each.candidate.origin, each.outcome) for each in evaluations if not each.candidate.settings]
    written = [(origin, outcome) for origin, outcome in outcomes if isinstance(origin, Written)]
    direct = [isinstance(outcome, Passed) for origin, outcome in written if origin.parent is None]
    if not written:
        return {}
    return {
        "graded": len(written),
        "passed": sum(isinstance(outcome, Passed) for _, outcome in written),
        "direct": len(direct),
        "direct_passed": sum(direct),
    }


def model_figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of a model: tasks that it answered and of those it solved, direct answers that pass, what answers cost, those that
    no time was left to grade among them; empty without one."""
    answered = [(row["task"], writing) for row in rows for writing in _writings(row) if writing["answers"]]
    if not answered:
        return {}
    told_of = [(row["task"], row["written"]) for row in rows if "written" in row]
    direct: dict[str, tuple[int, int]] = {}
    for task, written in told_of:
        answers, passed = direct.get(task, (0, 0))
        direct[task] = answers + written["direct"], passed + written["direct_passed"]
    figures: dict[str, Any] = {
        "tasks": len({task for task, _ in answered}),
        "solved": len({task for task, written in told_of if written["passed"]}),
    }
    for k in (1, 5):
        chances = [pass_at(k, answers, passed) for answers, passed in direct.values() if answers >= k]
        figures[f"pass_at_{k}"] = round(sum(chances) / len(chances), 4) if chances else None
    figures["graded"] = sum(written["graded"] for _, written in told_of)
    for cost in ("answers", "prompt_tokens", "completion_tokens", "seconds"):
        figures[cost] = round(sum(writing[cost] for _, writing in answered), 2)
    return figures


def _writings(row: dict[str, Any]) -> list[dict[str, Any]]:
    """What a search's writer counted itself, if it is a model."""
    return [writing for source in row["sources"] if (writing := source.get("writing"))]


def summarize(path: Path) -> None:
    """The figures of the model in a result file once more, from its rows; the rest stays."""
    result = json.loads(path.read_text(encoding="utf-8"))
    result["model"] = model_figures(result["rows"])
    write_result(path, result)
    print(json.dumps(result["model"], indent=1))


def told(rows: Sequence[dict[str, Any]], device: DeviceDescription, options: argparse.Namespace) -> dict[str, Any]:
    """The result file."""
    whole = [name for name in {row["task"] for row in rows} if len(_levels_of(rows, name)) == len(_levels(options))]
    return {
        "kind": "refine_ablation",
        "times": "measured" if device.kind == "cuda" else "estimated",
        "device": device.model_dump(mode="json"),
        "machine": machine(),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "writer": _writer(options),
        "budget": {"candidates": options.candidates, "seconds": options.seconds, "preset": options.preset},
        "tasks": len(whole),
        "model": model_figures(rows),
        "over_first_programs": {level: _gain(rows, whole, level) for level in _levels(options)},
        "rows": list(rows),
    }


def _gain(rows: Sequence[dict[str, Any]], tasks: Sequence[str], level: str) -> float | None:
    """Geometric mean over the tasks that every level was run on; None of none."""
    chosen = [row for row in rows if row["feedback"] == level and row["task"] in tasks]
    ratios = [row["first_us"] / row["best_us"] for row in chosen if row["first_us"] and row["best_us"]]
    return round(geometric_mean(ratios), 4) if ratios else None


def _levels_of(rows: Sequence[dict[str, Any]], task: str) -> set[str]:
    return {row["feedback"] for row in rows if row["task"] == task}


def _best_us(evaluations: Sequence[Evaluation], *, first: bool) -> float | None:
    """Of the first programs, or of all; None where none passed."""
    times = [
        each.outcome.timing.median_us
        for each in evaluations
        if isinstance(each.outcome, Passed) and (not first or source_of(each.candidate) == "families")
    ]
    return min(times, default=None)


def _task(name: str, axes: Mapping[str, int], level: Feedback, options: argparse.Namespace) -> PatientTask:
    workload = Workload(operation=name, element_type="float32", axes=dict(axes))
    chosen = {"preset": options.preset} if options.preset else {}
    refine = Refinement.model_validate({**chosen, "writer": _writer(options)["name"], "feedback": level})
    asked = TuningOptions(
        operation=name,
        axes=dict(axes),
        search="refine",
        refine=refine,
        budget=Budget(candidates=options.candidates, seconds=options.seconds),
    )
    run_id = f"ablation-{name}-{level}"
    return PatientTask(run_id, run_id, KernelOrder(workload=workload, options=asked), Problem(workload))


def _writer(options: argparse.Namespace) -> dict[str, str]:
    if options.endpoint:
        return {"name": "endpoint", "model": options.model}
    if options.policy is not None:
        return {"name": "text", "model": options.policy.name}
    return {"name": options.writer, "model": ""}


def _levels(options: argparse.Namespace) -> tuple[Feedback, ...]:
    """A writer without a model is told nothing: one level is all there is."""
    return LEVELS[:1] if _writer(options)["name"] == "mutate" else LEVELS


def _asked(options: argparse.Namespace, device: DeviceDescription) -> Iterator[tuple[str, Mapping[str, int], Feedback]]:
    levels, chosen = _levels(options), options.tasks.split(",")
    for place, task in enumerate(task for task in our_tasks() if task.name in chosen):
        has_sizes = device.kind == "cuda" and task.published
        axes = task.published[len(task.published) // 2] if has_sizes else task.trial
        for number in range(len(levels)):
            yield task.name, axes, levels[(number + place) % len(levels)]


def _rows_before(path: Path, device: DeviceDescription, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Of a run on the same device and commit with the same writer."""
    if not path.exists():
        return []
    before = json.loads(path.read_text(encoding="utf-8"))
    commit = options.commit or source_commit()
    is_same = (before["commit"], before["device"]["name"], before["writer"]) == (commit, device.name, _writer(options))
    return list(before["rows"]) if is_same else []


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--endpoint", default="", help="address of a model, up to /v1")
    parser.add_argument("--model", default="", help="as that address calls it")
    parser.add_argument("--key-file", type=Path, help="file with its key")
    parser.add_argument("--policy", type=Path, help="folder of a language model that vLLM serves in here")
    parser.add_argument("--prompt-tokens", type=int, default=6144, help="... its longest prompt")
    parser.add_argument("--program-tokens", type=int, default=2048, help="... its longest answer")
    parser.add_argument("--engine-samples", type=int, default=256, help="... answers that it writes at a time")
    parser.add_argument("--engine-memory", type=float, default=0.1, help="... its share of the GPU's memory")
    parser.add_argument("--questions", type=int, default=10, help="... that one search has under way")
    parser.add_argument("--at-once", type=int, default=1, help="searches")
    parser.add_argument("--writer", default="mutate", choices=("mutate",), help="where there is no model")
    parser.add_argument("--tasks", default=",".join(TASKS), help="names with commas between")
    parser.add_argument("--preset", default="", choices=("", "fsr"))
    parser.add_argument("--history-characters", type=int, default=24_000)
    parser.add_argument("--candidates", type=int, default=40, help="of a search, first programs included")
    parser.add_argument("--seconds", type=float, default=120.0, help="of a search")
    parser.add_argument(
        "--all-seconds", type=float, default=24 * 3600, help="no search is begun later than this after the model serves"
    )
    parser.add_argument("--summarize", type=Path, help="result file whose figures of the model are found once more")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "interpreter"))
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.endpoint and not options.model:
        parser.error("--model: needed with --endpoint")
    return options


if __name__ == "__main__":
    main()
