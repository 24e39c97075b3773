"""Imported tasks answered, exported, and judged by the suites that they came from; on a GPU.

    python -m benchmarks.judging.suites FOLDER [--kernelbench CHECKOUT] [--tasks a,b] [--candidates 24] [--seconds 30]
        [--all-seconds S] [--at-once 1] [--out benchmarks/results]

FOLDER holds imported tasks, as `sparsesmith tasks import --into FOLDER` makes them. Each is tuned by the system's own
means at the first size that its suite has, the fastest program that passed is exported (`sparsesmith tasks export`),
and the export is judged by flashinfer-bench where that is installed, or by the checkout of KernelBench that is named.
Beside that the problem's own torch reference and the answer are timed in turns on the GPU. What is judged is the
export, whatever its time: nothing needs to be faster than anything.

References and exports run in this process, unconfined, as in their suites: import only what you trust. A row is written
as soon as it is there: a run that is cut off is taken up where it ended, on the same commit. With `--at-once` each task has a
process of its own, all on the one GPU: what is right is told as before, times are of a GPU that others use.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.judging.apart import rows_apart
from benchmarks.judging.suite_evaluators import asked_flashinfer, asked_kernelbench, suite_workload
from benchmarks.measure.tasks import Found, searched
from benchmarks.origin import RESULTS, device_folder, machine, source_commit, write_result
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.jobs import Grader
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.artifacts.exports import exported_program
from sparsesmith.errors import SparsesmithError
from sparsesmith.operations import Problem, operations
from sparsesmith.operations.imported.constants import text_with_constants
from sparsesmith.operations.imported.folder import DEFINITION, REFERENCE, VARIABLE, imported_tasks
from sparsesmith.operations.imported.task import ImportedTask
from sparsesmith_proto.kernel import DeviceDescription, Workload

BATCHES = 20
"""Of each side, in turns."""


def main() -> None:
    options = _parsed()
    os.environ[VARIABLE] = str(options.folder)  # The device's process looks there, too.
    operations.cache_clear()
    end = time.monotonic() + options.all_seconds
    settings = EvaluatorSettings(device=options.device)
    with (
        closing(device_process(settings)) as process,
        Compiler(max(2, num_cores() - 1), timeout_s=settings.compile_limit_s) as compiler,
    ):
        grader = Grader(process, compiler)
        process.start()
        device = process.description()
        path = options.out / (device_folder(device) if device.kind == "cuda" else "cpu") / "suites.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = _rows_before(path, device)
        wanted = set(filter(None, options.tasks.split(",")))
        asked = [task for task in imported_tasks() if not wanted or task.name in wanted]
        asked = [task for task in asked if all(row["task"] != task.name for row in rows)]
        for found in _found(grader, asked, device, options, end):
            rows += found
            write_result(path, told(rows, device, options.at_once))
    told_of = told(rows, device, options.at_once)
    print(json.dumps({name: value for name, value in told_of.items() if name != "rows"}, indent=1))


def _found(
    grader: Grader, tasks: Sequence[ImportedTask], device: DeviceDescription, options: argparse.Namespace, end: float
) -> Iterator[list[dict[str, Any]]]:
    if options.at_once > 1:
        yield from rows_apart([task.name for task in tasks], partial(_command, options), options.at_once, end)
        return
    for task in tasks:
        if time.monotonic() > end:
            return
        row = judged(grader, task, device, options)
        print(json.dumps(row), flush=True)
        yield [row]


def _command(options: argparse.Namespace, task: str, into: Path) -> list[str]:
    """Of one task in a process of its own."""
    given = ["benchmarks.judging.suites", str(options.folder), "--tasks", task, "--out", str(into)]
    given += ["--device", options.device, "--candidates", str(options.candidates), "--seconds", str(options.seconds)]
    given += ["--kernelbench", str(options.kernelbench)] if options.kernelbench else []
    return given + (["--exports", str(options.exports)] if options.exports else [])


def judged(
    grader: Grader, task: ImportedTask, device: DeviceDescription, options: argparse.Namespace
) -> dict[str, Any]:
    """One task at one size. What cannot be done at all is told in the row."""
    axes = dict(task.published[0] if task.published else task.trial)
    row: dict[str, Any] = {"task": task.name, "suite": task.card.origin, "axes": axes}
    problem = Problem(Workload(operation=task.name, element_type=task.card.element_type, axes=axes))
    try:
        best = searched(grader, problem, options.candidates, options.seconds).best
    except SparsesmithError as error:
        return row | {"failed": error.message}
    if best is None:
        return row | {"failed": "no program passed"}
    return row | _asked(task, problem, best, device, options)


def _asked(
    task: ImportedTask, problem: Problem, best: Found, device: DeviceDescription, options: argparse.Namespace
) -> dict[str, Any]:
    """What the suite says of the fastest program's export; on a GPU also its reference's time beside ours."""
    name, text = exported_program(task, problem, best.program, device)
    row: dict[str, Any] = {"family": best.instance.family, "us": best.passed.timing.median_us, "export": name}
    if options.exports is not None:
        options.exports.mkdir(parents=True, exist_ok=True)
        (options.exports / name).write_text(text, encoding="utf-8")
    if device.kind != "cuda":
        return row
    try:
        row["evaluator"] = _suites_word(task, problem, text, options.kernelbench)
    except ImportError as error:
        row["not_asked"] = str(error)
    if task.card.origin == "kernelbench":
        row["in_turns"] = _in_turns(text)
    return row


def _suites_word(task: ImportedTask, problem: Problem, text: str, checkout: Path | None) -> dict[str, Any]:
    """Raises ImportError where its evaluator is not there."""
    match task.card.origin:
        case "flashinfer-bench":
            definition = json.loads((task.folder / DEFINITION).read_text(encoding="utf-8"))
            return asked_flashinfer(definition, suite_workload(task.card, definition, problem.workload.axes), text)
        case "kernelbench":
            if checkout is None:
                raise ImportError("no checkout of KernelBench was named (--kernelbench)")
            reference = (task.folder / REFERENCE).read_text(encoding="utf-8")
            return asked_kernelbench(checkout, text_with_constants(reference, task.card.constants), text)


def _in_turns(text: str) -> dict[str, Any]:
    """The problem's own reference and the answer on the suite's inputs, microseconds of a call."""
    import torch

    from benchmarks.measure.task_libraries import in_turns_us

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    reference, answer = sides_of(text, "cuda")
    with torch.no_grad():
        (reference_us, answer_us), is_captured = in_turns_us([reference, answer], BATCHES)
    return {"reference_us": reference_us, "answer_us": answer_us, "captured": is_captured}


def sides_of(text: str, device: str) -> tuple[Any, Any]:
    """Calls of `Model` and of `ModelNew` of an exported module, with the same parameters and inputs."""
    import torch

    module = ModuleType("exported")
    exec(compile(text, "exported.py", "exec"), module.__dict__)
    sides = []
    for name in ("Model", "ModelNew"):
        torch.manual_seed(0)
        sides.append(getattr(module, name)(*module.get_init_inputs()).to(device))
    torch.manual_seed(1)
    given = [each.to(device) if isinstance(each, torch.Tensor) else each for each in module.get_inputs()]
    reference, answer = sides
    return lambda: reference(*given), lambda: answer(*given)


def told(rows: Sequence[dict[str, Any]], device: DeviceDescription, at_once: int = 1) -> dict[str, Any]:
    """The result file."""
    asked = [row for row in rows if "evaluator" in row]
    return {
        "kind": "suites",
        "device": device.model_dump(mode="json"),
        "machine": machine(),
        "commit": source_commit(),
        "at_once": at_once,
        "tasks": len(rows),
        "answered": sum("export" in row for row in rows),
        "asked": len(asked),
        "agree": sum(row["evaluator"]["agrees"] for row in asked),
        "disagree": [row["task"] for row in asked if not row["evaluator"]["agrees"]],
        "failed": {row["task"]: row["failed"] for row in rows if "failed" in row},
        "not_asked": {row["task"]: row["not_asked"] for row in rows if "not_asked" in row},
        "rows": list(rows),
    }


def _rows_before(path: Path, device: DeviceDescription) -> list[dict[str, Any]]:
    """Of a run on the same device and commit."""
    if not path.exists():
        return []
    before = json.loads(path.read_text(encoding="utf-8"))
    same = before["commit"] == source_commit() and before["device"]["name"] == device.name
    return list(before["rows"]) if same else []


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kernelbench", type=Path, help="a checkout of KernelBench, whose evaluator is asked")
    parser.add_argument("--tasks", default="", help="names with commas between; all by default")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "interpreter"))
    parser.add_argument("--candidates", type=int, default=24, help="programs tried of a task, at most")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a task, at most")
    parser.add_argument("--all-seconds", type=float, default=24 * 3600, help="no task is begun after this time")
    parser.add_argument("--at-once", type=int, default=1, help="tasks, each in a process of its own")
    parser.add_argument("--exports", type=Path, help="a folder that exports are kept in")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
