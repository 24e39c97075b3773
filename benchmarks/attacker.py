"""An adaptive attacker: thousands of hostile programs by a grammar (benchmarks/attacks.py), graded like any candidate.

    python -m benchmarks.attacker [--attempts 10000] [--seconds S] [--workers N] [--out FILE]

On the device that the settings name: the interpreter, or a GPU where there is one. Every attempt that passes although its
machine code is not its honest twin's is kept whole in the result file and reported: none should be. What gets far draws
more of its kind: pairs of deed and detour that came past the text are tried again with other disguises, twice as often.
The result file holds how far it came, so that the command goes on where it was stopped.
"""

import argparse
import json
import os
import platform
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse

from benchmarks.attacks import Attempt, attempt
from benchmarks.origin import device_folder, source_commit
from benchmarks.suites import ROOT
from services.evaluator.candidates import parse_candidate, parse_text
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.breach import breach
from services.evaluator.devices import device_process
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.isolation.workbench import Workbench
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Candidate, CompileFailed, Passed, Rejected, TimedOut, UserWritten, Workload

MAX_KEPT = 200
COMPILE_LIMIT_S = 60.0


class Attacker:
    """Grades attempts on one workload."""

    def __init__(self, workload: Workload, bench: Workbench, compiler: Compiler) -> None:
        self._workload = workload
        self._bench = bench
        self._compiler = compiler
        self._twins: dict[str, str] = {}

    def stage(self, tried: Attempt) -> tuple[str, str]:
        """Where an attempt ended (`text`, `compiler`, `machine code`, `harmless`, or its outcome), and the reason."""
        candidate = Candidate(candidate_id=f"a{tried.number}", program=tried.program, origin=UserWritten())
        parsed = parse_candidate(candidate, self._workload)
        program = parsed.program
        if isinstance(program, Rejected):
            return "text", program.message
        with CompilationsAhead(self._compiler, "sm_90", COMPILE_LIMIT_S) as ahead:
            binary = ahead.result(program)
            if isinstance(binary, CompileFailed | TimedOut):
                return "compiler", binary.log if isinstance(binary, CompileFailed) else binary.message
            reason = breach(program, binary)
            if reason:
                return "machine code", reason
            if _code(binary) == self._twin(tried.twin):
                return "harmless", "the compiler left nothing of it"
            outcome = evaluate_kernel(parsed, ahead.result, self._bench, Race(baseline_us=1e9))
        return outcome.outcome, "" if isinstance(outcome, Passed) else getattr(outcome, "message", "")

    def _twin(self, text: str) -> str:
        if text not in self._twins:
            program = parse_text(text, self._workload)
            assert not isinstance(program, Rejected), program
            binary = self._compiler.compile(program.source, "sm_90")
            assert isinstance(binary, Compiled), binary
            self._twins[text] = _code(binary)
        return self._twins[text]


def _code(binary: Compiled) -> str:
    """Its PTX without lines of the program, and registers by the order of their first mention."""
    lines = (line for line in binary.ptx.split("\n") if not line.startswith((".loc", ".reg")))
    return "\n".join(lines)


def main() -> None:
    options = _options()
    pattern = pattern_from_scipy(
        scipy.sparse.random(300, 301, 0.05, format="csr", random_state=np.random.default_rng(options.seed))
    )
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    settings = EvaluatorSettings()
    until = time.monotonic() + options.seconds
    with ExitStack() as stack:
        compiler = stack.enter_context(Compiler(options.workers, timeout_s=COMPILE_LIMIT_S))
        processes = [stack.enter_context(closing(device_process(settings))) for _ in range(options.workers)]
        benches = [process.open(Problem(workload, pattern)) for process in processes]
        device = benches[0].description()
        out = options.out or ROOT / "benchmarks" / "results" / device_folder(device) / "attacker.json"
        campaign = Campaign(out, device.model_dump(mode="json"), options.attempts, until)
        with ThreadPoolExecutor(options.workers) as threads:
            runs = [threads.submit(campaign.run, Attacker(workload, bench, compiler)) for bench in benches]
            for run in runs:
                run.result()
    campaign.write()
    state = campaign.state
    print(f"{state['num_attempts']} attempts: {state['stages']}; passed: {len(state['passed'])}")


class Campaign:
    """What all workers take their attempts from, and the result file."""

    def __init__(self, out: Path, device: dict[str, Any], attempts: int, until: float) -> None:
        self.state = _read(out)
        self._out = out
        self._device = device
        self._attempts = attempts
        self._until = until
        self._draw = random.Random(self.state["num_attempts"])
        self._lock = Lock()

    def run(self, attacker: Attacker) -> None:
        """Attempts until there are enough or the time is over."""
        while self.state["num_attempts"] < self._attempts and time.monotonic() < self._until:
            with self._lock:
                tried = attempt(_next(self.state, self._draw))
            stage, reason = attacker.stage(tried)
            with self._lock:
                _note(tried, stage, reason, self.state)
                if self.state["num_attempts"] % 50 == 0:
                    self.write()

    def write(self) -> None:
        _write(self._out, self.state, self._device)


def _next(state: dict[str, Any], draw: random.Random) -> int:
    """A fresh number; in half of the cases the first of some whose kind has come far before."""
    number = state["next_number"]
    if state["far"] and draw.random() < 0.5:
        wanted = set(state["far"])
        number = next((n for n in range(number, number + 40) if _kind(attempt(n)) in wanted), number)
    state["next_number"] = number + 1
    return int(number)


def _kind(tried: Attempt) -> str:
    """Deed and detour."""
    return tried.name.rpartition(" / ")[0]


def _note(tried: Attempt, stage: str, reason: str, state: dict[str, Any]) -> None:
    state["num_attempts"] += 1
    state["stages"] = dict(Counter(state["stages"]) + Counter([stage]))
    by_deed = state["deeds"].setdefault(tried.name.partition(" / ")[0], {})
    by_deed[stage] = by_deed.get(stage, 0) + 1
    if stage == "passed":
        state["passed"].append({"number": tried.number, "name": tried.name, "program": tried.program})
    if stage not in ("text", "compiler", "machine code") and _kind(tried) not in state["far"]:
        state["far"] = [*state["far"], _kind(tried)][-MAX_KEPT:]
        state["examples"].append({"name": tried.name, "stage": stage, "reason": reason[:300]})
        state["examples"] = state["examples"][-MAX_KEPT:]


def _read(path: Path) -> dict[str, Any]:
    if path.is_file():
        state: dict[str, Any] = json.loads(path.read_text())
        return state
    empty: dict[str, Any] = {"stages": {}, "deeds": {}, "passed": [], "far": [], "examples": []}
    return {"kind": "attacker", "num_attempts": 0, "next_number": 0, **empty}


def _write(path: Path, state: dict[str, Any], device: dict[str, Any]) -> None:
    state |= {
        "commit": source_commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "host": {"machine": platform.machine(), "num_cores": os.cpu_count()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".part")
    written.write_text(json.dumps(state, indent=1) + "\n")
    written.replace(path)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10_000, help="in all, those of the result file counted in")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long and go on with the next call")
    parser.add_argument("--seed", type=int, default=1, help="of the matrix")
    parser.add_argument("--workers", type=int, default=1, help="device processes side by side; 1 on a GPU")
    parser.add_argument("--out", type=Path, help="result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
