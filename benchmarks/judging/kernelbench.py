"""KernelBench problems as tasks: whether each imports, and whether what is right of it is told from what is nearly right.

    python -m benchmarks.judging.kernelbench FOLDER [--out benchmarks/results/cpu] [--problems 1,19] [--full-size] [--seconds S]
        [--at-once 8] [--into TASKS]

FOLDER holds the problems of a level, as their repository has them. Each is imported with its sizes scaled down to what
a CPU does in seconds, unless `--full-size`, for which most problems want tens of gigabytes (`--memory-gib`) and
minutes. On every kind of inputs that the import allows: what torch finds in float32 by other routines than the
reference's must be right; one entry changed by a hundredth, all scaled by 1.001, and all rounded to half precision must
each be refused on at least one draw. A result of whole numbers, or of zeros alone, has no
spoiled ones of the last two. Where the problem is a task of ours, its naive program is checked on the interpreter. A row
is written as soon as it is there: a run that is cut off is taken up where it ended, on the same commit. With `--at-once` each
problem has a process of its own; what is not done after `--seconds` is then ended. `--into` keeps what was imported, a folder a
task, as `benchmarks.judging.suites` takes it. At full size no naive program runs on the interpreter: suites runs ours on a GPU.
"""

import argparse
import ast
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.judging.apart import rows_apart
from benchmarks.origin import RESULTS, machine, source_commit, write_result
from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from services.evaluator.references.client import ReferenceLimits, ReferenceProcess
from services.evaluator.references.importing import ImportOptions, import_task, is_right
from sparsesmith.errors import InvalidInput, SparsesmithError
from sparsesmith.operations import Problem, operations
from sparsesmith.operations.imported import folder as imported
from sparsesmith.operations.imported.card import Card
from sparsesmith.operations.imported.references import Answer, Arrays, install
from sparsesmith.operations.operation import Array
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

DISTINCT = (19, 23, 29, 31, 17, 37)
"""In the place of sizes above 256, in the order in which a module names them: a swap of two is seen."""
SMALL, SMALLEST = 12, 8
"""In the place of sizes above 64 and above 32: channels that groups divide."""
SEEDS = (11, 12)

Spoil = Callable[[Array], Array]


def main() -> None:
    options = _parsed()
    wanted = set(filter(None, options.problems.split(",")))
    paths = _problems(options.folder)
    if wanted:
        order = options.problems.split(",")
        paths = [path for number in order for path in paths if path.name.split("_")[0] == number]
    end = time.monotonic() + options.seconds
    target = options.out / "kernelbench.json"
    rows = _rows_before(target, full_size=options.full_size)
    paths = [path for path in paths if all(row["problem"] != path.stem for row in rows)]
    for found in _found(paths, options, end):
        rows += found
        write_result(target, _told(rows, full_size=options.full_size))
    told = _told(rows, full_size=options.full_size)
    print(json.dumps({name: value for name, value in told.items() if name != "rows"}, indent=1))


def _found(paths: Sequence[Path], options: argparse.Namespace, end: float) -> Iterator[list[dict[str, Any]]]:
    if options.at_once == 1:
        yield from _found_here(paths, options, end)
        return

    def command(number: str, into: Path) -> list[str]:
        given = ["benchmarks.judging.kernelbench", str(options.folder), "--out", str(into), "--problems", number]
        limits = ["--memory-gib", str(options.memory_gib), "--answer-seconds", str(options.answer_seconds)]
        kept = ["--into", str(options.into / number)] if options.into else []
        return [*given, *limits, *kept, *(["--full-size"] if options.full_size else [])]

    numbers = [path.name.split("_")[0] for path in paths]
    for rows in rows_apart(numbers, command, options.at_once, end):
        if options.into:
            for row in rows:
                brought_up(options.into, row["problem"].split("_")[0])
        yield rows
    if options.into:
        for number in numbers:  # Of what was not done in time.
            shutil.rmtree(options.into / number, ignore_errors=True)


def brought_up(into: Path, number: str) -> None:
    """What a problem's own process has imported, a folder below the others': beside them. Half-written imports of
    others would be in its way, and it in theirs."""
    own = into / number
    for task in own.iterdir() if own.exists() else ():
        shutil.rmtree(into / task.name, ignore_errors=True)
        task.rename(into / task.name)
    shutil.rmtree(own, ignore_errors=True)


def _found_here(paths: Sequence[Path], options: argparse.Namespace, end: float) -> Iterator[list[dict[str, Any]]]:
    with TemporaryDirectory() as unkept, ReferenceProcess(_limits(options)) as references, Compiler() as compiler:
        into = str(options.into or unkept)
        Path(into).mkdir(parents=True, exist_ok=True)
        install(references)
        _look_for_tasks_in(into)
        for path in paths:
            if time.monotonic() > end:
                break
            row = _row(path, Path(into), references, compiler, full_size=options.full_size)
            print(json.dumps(row), flush=True)
            yield [row]


def _rows_before(target: Path, *, full_size: bool) -> list[dict[str, Any]]:
    """Of a run that was cut off, of this commit."""
    if not target.exists():
        return []
    before: dict[str, Any] = json.loads(target.read_text(encoding="utf-8"))
    same = before["commit"] == source_commit() and before["full_size"] == full_size
    rows: list[dict[str, Any]] = before["rows"] if same else []
    return rows


def _told(rows: list[dict[str, Any]], *, full_size: bool) -> dict[str, Any]:
    """The result file."""
    ordered = sorted(rows, key=lambda row: _number_of(row["problem"]))
    about = {"commit": source_commit(), "machine": machine(), "full_size": full_size}
    return {**_counts(ordered), **about, "rows": ordered}


def _row(
    path: Path, into: Path, references: ReferenceProcess, compiler: Compiler, *, full_size: bool
) -> dict[str, Any]:
    started = time.monotonic()
    text = path.read_text(encoding="utf-8")
    constants = {} if full_size else scaled_constants(text)
    try:
        try:
            card = import_task(path, into, ImportOptions(constants=constants), references)
        except InvalidInput:  # Perhaps of sizes that must be equal.
            constants = {} if full_size else scaled_constants(text, are_distinct=False)
            card = import_task(path, into, ImportOptions(constants=constants), references)
    except SparsesmithError as error:
        return {"problem": path.stem, "set": constants, "failed": error.message}
    row: dict[str, Any] = {"problem": path.stem, "set": constants}
    folder = into / card.name
    row |= {"kinds": list(card.kinds), "flags": list(card.flags), "allowance": round(card.allowance, 2)}
    row |= _judged(card, folder, references)
    if card.solves:
        row |= {"solves": card.solves} | ({} if full_size else {"naive": _naive_outcome(card, compiler)})
    return row | {"seconds": round(time.monotonic() - started, 1)}


def _judged(card: Card, folder: Path, references: ReferenceProcess) -> dict[str, Any]:
    torch_right, refused, num_terms = True, dict[str, bool](), 0
    for kind in card.kinds:
        for seed in SEEDS:
            inputs = references.draw(folder, card, kind, card.fixed, seed)
            answer = references.answer(folder, card, card.fixed, inputs)
            found = references.otherwise(folder, card, card.fixed, inputs)
            torch_right = torch_right and is_right(card, answer, found)
            num_terms = answer.num_terms
            for name, spoiled in _spoiled(card, answer, np.random.default_rng(seed)):
                refused[name] = refused.get(name, False) or not is_right(card, answer, spoiled)
    return {"terms": num_terms, "torch_right": torch_right, "refused": refused}


def _spoiled(card: Card, answer: Answer, generator: np.random.Generator) -> Iterator[tuple[str, Arrays]]:
    own = {name: result.own for name, result in answer.results.items()}
    floating = {
        each.name for each in card.operands if each.role == "output" and each.is_floating and own[each.name].any()
    }

    def spoil(change: Spoil) -> Arrays:
        return {name: change(array) if name in floating else array for name, array in own.items()}

    yield "entry", {name: _with_one_entry(array, generator, whole=name not in floating) for name, array in own.items()}
    if floating:
        yield "scale", spoil(lambda array: array * 1.001)
        yield "half", spoil(_halved)


def _with_one_entry(array: Array, generator: np.random.Generator, *, whole: bool) -> Array:
    changed = array.copy()
    place = int(generator.integers(array.size))
    entry = changed.reshape(-1)[place]
    size = max(abs(float(entry)), float(np.sqrt(np.mean(array**2))))
    changed.reshape(-1)[place] = entry + (1 if whole or not size else size / 100)
    return changed


def _halved(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float64)


def _naive_outcome(card: Card, compiler: Compiler) -> str:
    problem = Problem(Workload(operation=card.name, element_type=card.element_type))
    text = with_element_type(problem.operation.programs[problem.operation.naive], card.element_type)
    program = parse_program(text, card.name, card.element_type)
    device = InterpreterDevice()
    binary = compiler.compile(program.source, device.architecture)
    if not isinstance(binary, Compiled):
        return f"it does not compile: {binary.log}"
    verdict = LocalWorkbench(device, problem).check("naive", program, binary)
    return "correct" if isinstance(verdict, Correct) else verdict.message


def scaled_constants(text: str, *, are_distinct: bool = True) -> dict[str, int]:
    """Whole numbers that a module assigns to names, or tuples of such, made small, those above 256 all different or all
    the same; those up to 32 stay (windows, strides, groups)."""
    found, large = dict[str, int](), iter(DISTINCT * 4) if are_distinct else repeat(DISTINCT[0])
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _number(node.value)
            if value is not None and value > 32:
                found[node.targets[0].id] = next(large) if value > 256 else SMALL if value > 64 else SMALLEST
    return found


def _number(node: ast.expr) -> int | None:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = _number(left), _number(right)
            return None if one is None or other is None else one * other
        case ast.Tuple(elts=entries):
            return max(filter(None, map(_number, entries)), default=None)
        case _:
            return None


def _look_for_tasks_in(folder: str) -> None:
    """This process finds imported tasks there, as services do in the folder of their setting."""
    os.environ[imported.VARIABLE] = folder
    operations.cache_clear()


def _problems(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.py"), key=lambda path: _number_of(path.name))


def _number_of(name: str) -> int:
    return int(re.findall(r"\d+", name)[0])


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    imported_rows = [row for row in rows if "failed" not in row]
    solved = [row for row in imported_rows if "solves" in row]
    missed = {
        row["problem"]: [name for name, refused in row["refused"].items() if not refused]
        for row in imported_rows
        if not all(row["refused"].values())
    }
    return {
        "problems": len(rows),
        "imported": len(imported_rows),
        "torch_judged_right": sum(row["torch_right"] for row in imported_rows),
        "all_spoiled_refused": sum(all(row["refused"].values()) for row in imported_rows),
        "flagged": sum(bool(row["flags"]) for row in imported_rows),
        "solved_by_ours": len(solved),
        "solved_and_right_on_the_interpreter": sum(row.get("naive") == "correct" for row in solved),
        "failed": {row["problem"]: row["failed"] for row in rows if "failed" in row},
        "torch_refused": [row["problem"] for row in imported_rows if not row["torch_right"]],
        "spoiled_accepted": missed,
    }


def _limits(options: argparse.Namespace) -> ReferenceLimits:
    """Of the process that answers as the problem does."""
    return ReferenceLimits(seconds=options.answer_seconds, memory_bytes=int(options.memory_gib * 2**30))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judging.kernelbench", description=__doc__.splitlines()[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu")
    parser.add_argument("--problems", default="", help="numbers, with commas between, in that order")
    parser.add_argument("--seconds", type=float, default=7200, help="no problem is begun after them")
    parser.add_argument("--full-size", action="store_true")
    parser.add_argument("--at-once", type=int, default=1, help="problems, each in a process of its own")
    parser.add_argument("--into", type=Path, help="a folder that imports are kept in")
    usual = ReferenceLimits()
    parser.add_argument(
        "--memory-gib", type=float, default=usual.memory_bytes / 2**30, help="of the reference's process"
    )
    parser.add_argument("--answer-seconds", type=float, default=usual.seconds, help="longest answer of the reference")
    return parser.parse_args()


if __name__ == "__main__":
    main()
