"""The measurement: see the package."""

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.judging.judge import CRASHING
from benchmarks.measure import crash_costs
from benchmarks.measure.compiled_sources import TICK_S
from benchmarks.origin import ROOT, device_folder, source_commit, write_result
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.cores import num_cores
from services.evaluator.devices import device_process
from services.evaluator.isolation.child import Call, Child, Done, Open
from services.evaluator.isolation.sandbox import DeviceProcess
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.families import propose
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import DeviceDescription, Workload

LIMIT_S = 300.0
CRASHING_EVERY = 7


def main() -> None:
    options = _options()
    side = 20_000
    density = options.nnz / side**2
    pattern = pattern_from_scipy(
        scipy.sparse.random(side, side, density, format="csr", random_state=np.random.default_rng(1))
    )
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    with Compiler(num_cores(), timeout_s=LIMIT_S) as compiler:
        programs = _programs(pattern, workload, options.candidates, compiler)
        crashing = _compiled([CRASHING.replace("NUMBER", "1")], workload, compiler)[0]
    settings = EvaluatorSettings(spare_process=True)
    with closing(device_process(settings)) as process:
        device = process.start()
        spare = [_steps(process, workload, pattern, [program for program, _ in programs]) for _ in range(options.turns)]
        together = {str(number): _together(process, number) for number in options.together}
    batches = []
    for spares in options.spares:
        least, most = map(int, spares.split(":"))
        chosen = EvaluatorSettings(spare_process=True, least_spares=least, most_spares=most)
        with closing(device_process(chosen)) as process:
            process.start()
            for batch in range(3):
                is_spoiled = batch > 0
                seconds = _checked(process, workload, pattern, programs, crashing if is_spoiled else None)
                batches.append({"spares": spares, "batch": batch, "spoiled": is_spoiled, "seconds": seconds})
                print(batches[-1], flush=True)
        _write(options, device, pattern.nnz, len(programs), spare, together, batches)


def _write(
    options: argparse.Namespace,
    device: DeviceDescription,
    nnz: int,
    num_programs: int,
    spare: Sequence[Mapping[str, tuple[float, float]]],
    together: Mapping[str, Mapping[str, float]],
    batches: Sequence[dict[str, Any]],
) -> None:
    """After every number of spares: a run that is cut off leaves what it had."""
    result = {
        "kind": "crash_costs",
        "device": device.model_dump(mode="json"),
        "commit": options.commit or source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "host": {"machine": platform.machine(), "num_cores": num_cores()},
        "nnz": nnz,
        "candidates": num_programs,
        "spare": {name: _mean([steps[name] for steps in spare]) for name in spare[0]},
        "together": together,
        "batches": batches,
        "seconds_a_crash": _costs(batches, num_programs),
    }
    print(json.dumps({name: result[name] for name in ("spare", "together", "seconds_a_crash")}), flush=True)
    out = options.out or ROOT / "benchmarks" / "results" / device_folder(device) / "crash-costs.json"
    write_result(out, result)


CompiledProgram = tuple[KernelProgram, Compiled]


def _programs(pattern: Pattern, workload: Workload, count: int, compiler: Compiler) -> list[CompiledProgram]:
    instances = propose(pattern, workload.operation, workload.element_type, workload.num_dense_cols, limit=count)
    return _compiled([instance.program for instance in instances], workload, compiler)


def _compiled(texts: Sequence[str], workload: Workload, compiler: Compiler) -> list[CompiledProgram]:
    programs = [parse_program(text, workload.operation, workload.element_type) for text in texts]
    binaries = compiler.compile_many([program.source for program in programs], "sm_90")
    return [
        (program, binary) for program, binary in zip(programs, binaries, strict=True) if isinstance(binary, Compiled)
    ]


# -- one spare process -------------------------------------------------------------------------------------------------
def _steps(
    process: DeviceProcess, workload: Workload, pattern: Pattern, programs: Sequence[KernelProgram]
) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of each step."""
    taken: dict[str, tuple[float, float]] = {}
    began = time.monotonic()
    child = Child(process._factory, process.description())
    child.wait_until_ready(LIMIT_S)
    taken["start"] = time.monotonic() - began, _cpu_s(child)
    for name, body in (
        ("open", Open(workload, Problem(workload, pattern))),
        ("formats", Call("build_ahead", (tuple(programs), LIMIT_S))),
        ("inputs", Call("draw")),
    ):
        began, before = time.monotonic(), _cpu_s(child)
        reply = child.exchange(body, name, LIMIT_S)
        assert isinstance(reply, Done), reply
        taken[name] = time.monotonic() - began, _cpu_s(child) - before
    child.kill()
    child.bury()
    return taken


def _together(process: DeviceProcess, number: int) -> dict[str, float]:
    """Seconds until the first and the last of so many are up."""
    began = time.monotonic()
    children = [Child(process._factory, process.description()) for _ in range(number)]

    def up_after(child: Child) -> float:
        child.wait_until_ready(LIMIT_S)
        return time.monotonic() - began

    with ThreadPoolExecutor(number) as threads:
        taken = list(threads.map(up_after, children))
    for child in children:
        child.kill()
        child.bury()
    return {"first": round(min(taken), 3), "last": round(max(taken), 3)}


def _cpu_s(child: Child) -> float:
    fields = Path(f"/proc/{child._process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) * TICK_S


def _mean(taken: Sequence[tuple[float, float]]) -> dict[str, float]:
    return {"seconds": round(fmean(wall for wall, _ in taken), 3), "cpu_s": round(fmean(cpu for _, cpu in taken), 3)}


# -- batches -----------------------------------------------------------------------------------------------------------
def _checked(
    process: DeviceProcess,
    workload: Workload,
    pattern: Pattern,
    programs: Sequence[CompiledProgram],
    crashing: CompiledProgram | None,
) -> float:
    """Seconds of a batch, from its first candidate on."""
    workbench = process.open(Problem(workload, pattern))
    workbench.draw()
    began = time.monotonic()
    workbench.build_ahead([program for program, _ in programs], LIMIT_S)
    for number, (program, binary) in enumerate(programs):
        workbench.build(program)
        workbench.check(f"program-{number}", program, binary)
        workbench.unload(f"program-{number}")
        if crashing is not None and number % CRASHING_EVERY == CRASHING_EVERY - 1:
            if process.description().kind == "interpreter":
                _end(process)
            else:
                workbench.check(f"crash-{number}", *crashing)
    return round(time.monotonic() - began, 3)


def _end(process: DeviceProcess) -> None:
    """As a kernel would, and the sandbox is told as it is then."""
    child = process._running_child()
    os.kill(child._process.pid or 0, 9)
    process._discard(child)


def _costs(batches: Sequence[dict[str, Any]], num_candidates: int) -> dict[str, list[float]]:
    """By number of spares: of the first batch with crashes and of the second."""
    num_crashes = num_candidates // CRASHING_EVERY
    costs: dict[str, list[float]] = {}
    for spares in dict.fromkeys(row["spares"] for row in batches):
        whole, *spoiled = (row["seconds"] for row in batches if row["spares"] == spares)
        costs[spares] = [round((seconds - whole) / num_crashes, 3) for seconds in spoiled]
    return costs


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=crash_costs.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--candidates", type=int, default=42)
    parser.add_argument("--spares", nargs="+", default=["1:4", "4:12"], help="LEAST:MOST")
    parser.add_argument(
        "--together", type=int, nargs="+", default=[1, 2, 4, 8], help="processes that are begun at once"
    )
    parser.add_argument("--nnz", type=int, default=200_000)
    parser.add_argument("--turns", type=int, default=3, help="spare processes that are made, one after another")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()
