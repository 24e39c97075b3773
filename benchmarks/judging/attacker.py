"""An adaptive attacker: thousands of hostile programs by a grammar (benchmarks/hostile), graded like any candidate.

    python -m benchmarks.judging.attacker [--attempts 10000] [--seconds S] [--workers N] [--out FILE]

On the device that the settings name: the interpreter, or a GPU where there is one. Every attempt that passes although its
machine code is not its honest twin's is compared with that twin: what work it does, whether the interpreter finds fault
with it, and on a GPU how long it takes. It counts as **accepted**, and is kept whole in the result file, where

- its deed is one that no kernel may do, or a read of what need not be there, whatever comes of it; or
- it does less than its twin or is undefined; or
- it takes less than 97 % of its twin's time, and a launch could know of the one before (`hostile.leftovers`).

None should be. A mutant or a shortcut that passes otherwise has come out as an honest program. One that does its twin's
whole work on the interpreter, with nothing to tell a launch by, does it in every timed launch: it is faster because it is
compiled better (a `volatile` left out lets loads run ahead), and no finding. What gets far attracts more of
its kind: pairs of deed and detour that came past the text are tried again with other disguises, twice as often. The result
file holds how far it came, so that the command goes on where it was stopped, and judges again first what it had accepted;
one of another grammar is begun anew. At the end what stands accepted is judged once more with nothing beside it, its twin timed anew: workers
that share a GPU disturb each other's times.
"""

import argparse
import json
import os
import platform
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import scipy.sparse

from benchmarks.judging.hostile.attempts import Attempt, attempt
from benchmarks.judging.hostile.mutants import corpus_digest
from benchmarks.judging.hostile.twins import Comparison, Twins
from benchmarks.origin import ROOT, device_folder, source_commit, write_result
from services.evaluator.candidates import parse_candidate, parse_text
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.compiling.contract.breach import breach
from services.evaluator.devices import device_process, inspections_beside
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.inspection import Inspections, inspection
from services.evaluator.isolation.workbench import Workbench
from services.evaluator.race import Race
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    Crashed,
    MeasuredTiming,
    Mismatch,
    Outcome,
    Passed,
    Rejected,
    TimedOut,
    UserWritten,
    Workload,
)
from sparsesmith_proto.message import Architecture

GRAMMAR = f"2, corpus {corpus_digest()}"
"""Of `benchmarks.judging.hostile` and the programs that it changes: numbers of attempts mean the same within one."""
MAX_KEPT = 200
COMPILE_LIMIT_S = 60.0
INSPECTION_WAIT_S = 30.0
ARCHITECTURE: Architecture = "sm_90"
FASTER = 0.97
"""A share of its twin's time that a program gains with."""


@dataclass(frozen=True)
class Ended:
    """Where an attempt ended: `text`, `compiler`, `machine code`, `harmless`, `inspection`, or its outcome."""

    stage: str
    reason: str = ""
    beside: Comparison | None = None
    """Of what passed with other machine code than its twin's."""
    of_twin: float | None = None
    """Its measured time as a share of its twin's."""

    def is_accepted(self, tried: Attempt) -> bool:
        """Whether it should not have passed."""
        if self.stage != "passed" or self.beside is None:
            return False
        gains = self.of_twin is not None and self.of_twin < FASTER and bool(self.beside.leftovers)
        return gains or tried.kind in ("forbidden", "undefined") or self.beside.work != "whole"


class Judges(Protocol):
    """Says where an attempt ended."""

    def tried(self, tried: Attempt) -> Ended: ...


class Attacker:
    """Grades attempts on one workload; a Judges."""

    def __init__(
        self,
        workload: Workload,
        workbench: Workbench,
        compiler: Compiler,
        twins: Twins,
        inspections: Callable[[], Inspections],
    ) -> None:
        self._workload = workload
        self._workbench = workbench
        self._compiler = compiler
        self._twins = twins
        self._inspections = inspections
        self._codes: dict[str, str] = {}
        self._times: dict[str, float | None] = {}

    def tried(self, tried: Attempt) -> Ended:
        program = parse_text(tried.program, self._workload)
        if isinstance(program, Rejected):
            return Ended("text", program.message)
        with CompilationsAhead(self._compiler, ARCHITECTURE, COMPILE_LIMIT_S) as ahead:
            binary = ahead.result(program)
            if isinstance(binary, CompileFailed | TimedOut):
                return Ended("compiler", binary.log if isinstance(binary, CompileFailed) else binary.message)
            reason = breach(program, binary)
            if reason:
                return Ended("machine code", reason)
            if code_of(binary) == self._code_of_twin(tried.twin):
                return Ended("harmless", "the compiler left nothing of it")
            outcome = self._outcome(tried.program, ahead)
        if not isinstance(outcome, Passed):
            return Ended(outcome.outcome, getattr(outcome, "message", ""))
        refused = inspection(self._inspections(), program, binary, INSPECTION_WAIT_S)
        if isinstance(refused, Crashed | Mismatch):
            return Ended("inspection", refused.message)
        beside = self._twins.compared(tried.program, tried.twin)
        return Ended("passed", beside.reason, beside, self._share_of_time(outcome, tried.twin))

    def _outcome(self, text: str, ahead: CompilationsAhead) -> Outcome:
        candidate = Candidate(candidate_id="attempt", program=text, origin=UserWritten())
        return evaluate_kernel(
            parse_candidate(candidate, self._workload), ahead.result, self._workbench, Race(baseline_us=1e9)
        )

    def _share_of_time(self, outcome: Passed, twin: str) -> float | None:
        """None where times are estimates."""
        if not isinstance(outcome.timing, MeasuredTiming):
            return None
        if twin not in self._times:
            with CompilationsAhead(self._compiler, ARCHITECTURE, COMPILE_LIMIT_S) as ahead:
                honest = self._outcome(twin, ahead)
            assert isinstance(honest, Passed), honest
            self._times[twin] = honest.timing.median_us
        return outcome.timing.median_us / (self._times[twin] or 1.0)

    def _code_of_twin(self, text: str) -> str:
        if text not in self._codes:
            program = parse_text(text, self._workload)
            assert not isinstance(program, Rejected), program
            binary = self._compiler.compile(program.source, ARCHITECTURE)
            assert isinstance(binary, Compiled), binary
            self._codes[text] = code_of(binary)
        return self._codes[text]


_REGISTER = re.compile(r"%(?:p|rs|r|rd|f|fd|h|hh|b)\d+\b")


def code_of(binary: Compiled) -> str:
    """Its PTX without lines of the program, and registers by the order of their first mention."""
    names: dict[str, str] = {}
    lines = (line for line in binary.ptx.split("\n") if not line.startswith((".loc", ".reg")))
    return _REGISTER.sub(lambda found: names.setdefault(found[0], f"%{len(names)}"), "\n".join(lines))


def main() -> None:
    options = _options()
    settings = EvaluatorSettings()
    until = time.monotonic() + options.seconds
    with ExitStack() as stack:
        compiler = stack.enter_context(Compiler(options.workers, timeout_s=COMPILE_LIMIT_S))
        processes = [stack.enter_context(closing(device_process(settings))) for _ in range(options.workers)]
        device = processes[0].description()
        pattern = _pattern(options.seed, is_timed=device.kind == "cuda")
        workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
        workbenches = [process.open(Problem(workload, pattern)) for process in processes]
        out = options.out or ROOT / "benchmarks" / "results" / device_folder(device) / "attacker.json"
        commit = options.commit or source_commit()
        campaign = Campaign(out, device.model_dump(mode="json"), options.attempts, until, commit)
        twins = Twins(workload, pattern, compiler)
        beside = stack.enter_context(inspections_beside(settings, device, waits=True))
        inspections = partial(beside, Problem(workload, pattern))
        attackers = [Attacker(workload, workbench, compiler, twins, inspections) for workbench in workbenches]
        campaign.judge_again(attackers[0])
        with ThreadPoolExecutor(options.workers) as threads:
            runs = [threads.submit(campaign.run, attacker) for attacker in attackers]
            for run in runs:
                run.result()
        campaign.judge_again(Attacker(workload, workbenches[0], compiler, twins, inspections))
    campaign.write()
    state = campaign.state
    print(f"{state['num_attempts']} attempts: {state['stages']}; accepted: {state['num_accepted']}")


def _pattern(seed: int, *, is_timed: bool) -> Pattern:
    """Where programs are timed, large enough that a product of it takes longer than a launch."""
    rows, cols, density = (3000, 2501, 0.01) if is_timed else (260, 261, 0.03)
    return pattern_from_scipy(
        scipy.sparse.random(rows, cols, density, format="csr", random_state=np.random.default_rng(seed))
    )


class Campaign:
    """What all workers take their attempts from, and the result file."""

    def __init__(self, out: Path, device: dict[str, Any], attempts: int, until: float, commit: str) -> None:
        self.state = _read(out)
        self._out = out
        self._device = device
        self._attempts = attempts
        self._until = until
        self._commit = commit
        self._chance = random.Random(self.state["num_attempts"])
        self._lock = Lock()

    def run(self, attacker: Attacker) -> None:
        """Attempts until there are enough or the time is over."""
        while self.state["num_attempts"] < self._attempts and time.monotonic() < self._until:
            with self._lock:
                tried = attempt(_next(self.state, self._chance))
            ended = attacker.tried(tried)
            with self._lock:
                note(tried, ended, self.state)
                if self.state["num_attempts"] % 50 == 0:
                    self.write()

    def judge_again(self, attacker: Judges) -> None:
        """What stands accepted, of an earlier version or beside other workers: a hole that was mended is told from one
        that is open."""
        for row in self.state["passed"]:
            if "program" not in row:
                continue
            tried = Attempt(**{each.name: row[each.name] for each in fields(Attempt)})
            if not attacker.tried(tried).is_accepted(tried):
                self.state["num_accepted"] -= 1
                row["accepted_until"] = self._commit
                for name in _NEEDED_AGAIN:
                    del row[name]

    def write(self) -> None:
        _write(self._out, self.state | {"commit": self._commit}, self._device)


def _next(state: dict[str, Any], chance: random.Random) -> int:
    """A fresh number; in half of the cases the first of some whose kind has come far before."""
    number = state["next_number"]
    if state["far"] and chance.random() < 0.5:
        wanted = set(state["far"])
        number = next((n for n in range(number, number + 40) if _kind(attempt(n)) in wanted), number)
    state["next_number"] = number + 1
    return int(number)


def _kind(tried: Attempt) -> str:
    """Deed and detour."""
    return tried.name.rpartition(" / ")[0]


_NEEDED_AGAIN = ("kind", "program", "twin")
"""Of an attempt, kept of accepted ones alone: by these and not by their number they are judged again."""


def note(tried: Attempt, ended: Ended, state: dict[str, Any]) -> None:
    """Counts an attempt, and keeps it where it passed."""
    stage = ended.stage
    state["num_attempts"] += 1
    state["stages"] = dict(Counter(state["stages"]) + Counter([stage]))
    by_deed = state["deeds"].setdefault(f"{tried.kind}: {tried.name.partition(' / ')[0]}", {})
    by_deed[stage] = by_deed.get(stage, 0) + 1
    if ended.beside is not None:
        _note_passed(tried, ended, ended.beside, state)
    if stage not in ("text", "compiler", "machine code") and _kind(tried) not in state["far"]:
        state["far"] = [*state["far"], _kind(tried)][-MAX_KEPT:]
        state["examples"].append({"name": tried.name, "stage": stage, "reason": ended.reason[:300]})
        state["examples"] = state["examples"][-MAX_KEPT:]


def _note_passed(tried: Attempt, ended: Ended, beside: Comparison, state: dict[str, Any]) -> None:
    """What passed is told from what was accepted; of honest mutants there are many, and only their work is kept."""
    is_accepted = ended.is_accepted(tried)
    state["num_accepted"] += is_accepted
    row = asdict(tried) | {"of_twins_time": ended.of_twin, **asdict(beside)}
    if not is_accepted:
        row = {name: value for name, value in row.items() if name not in _NEEDED_AGAIN}
    state["passed"] = [*state["passed"], row][-MAX_KEPT:]


def _read(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    if state.get("grammar") == GRAMMAR:
        return state
    empty: dict[str, Any] = {"stages": {}, "deeds": {}, "passed": [], "far": [], "examples": []}
    return {"kind": "attacker", "grammar": GRAMMAR, "num_attempts": 0, "num_accepted": 0, "next_number": 0, **empty}


def _write(path: Path, state: dict[str, Any], device: dict[str, Any]) -> None:
    state |= {
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "host": {"machine": platform.machine(), "num_cores": os.cpu_count()},
    }
    write_result(path, state)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=10_000, help="in all, those of the result file counted in")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long and go on with the next call")
    parser.add_argument("--seed", type=int, default=1, help="of the matrix")
    parser.add_argument("--workers", type=int, default=1, help="device processes side by side; 1 on a GPU")
    parser.add_argument("--commit", default="", help="of the code, where git does not say")
    parser.add_argument("--out", type=Path, help="result file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
