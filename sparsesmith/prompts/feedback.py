"""What a model is told of a program that it should improve on or repair."""

import re
from collections.abc import Iterator, Sequence
from typing import assert_never

from sparsesmith.prompts.suggestions import Circumstance, Suggestion, suggested
from sparsesmith_proto.api import Feedback
from sparsesmith_proto.evaluation import LaunchProfile, Profile
from sparsesmith_proto.kernel import (
    AdverseTiming,
    CompileFailed,
    Crashed,
    Mismatch,
    Outcome,
    Passed,
    Rejected,
    TimedOut,
)

MAX_LOG_CHARACTERS = 2000
MAX_QUOTED_LINES = 6
MAX_HOT_LINES = 3
_LINE_NUMBER = re.compile(r"(?:\bline |\((?=\d+\):)|:(?=\d+:))(\d+)")

_REPAIR = "Find the cause and answer with the whole program, repaired, in a ```cuda block."
_IMPROVE = "Optimise it for less execution time on this GPU. Answer with the whole program in a ```cuda block."


def failure(program: str, outcome: Outcome) -> str:
    """Of a program that did not pass: what was said of it, the lines that were named, and what is wanted."""
    quoted = list(_named_lines(program, _said(outcome)))
    return "\n".join([_heading(outcome), _said(outcome)[:MAX_LOG_CHARACTERS].rstrip(), *quoted, _REPAIR])


def success(
    program: str, circumstance: Circumstance, level: Feedback, profile: Profile | None
) -> tuple[str, tuple[Suggestion, ...]]:
    """Of a program that passed: its time, then as the level says; and the suggestions that were made."""
    lines = [_time(circumstance)]
    made: Sequence[Suggestion] = ()
    if level != "latency":
        lines += list(_profiled(program, circumstance, profile))
    if level == "suggestions":
        made = suggested(program, circumstance, profile)
        lines += ["You may try:"] if made else []
        lines += [f"- {each.advice}" for each in made]
    return "\n".join([*lines, _IMPROVE]), tuple(made)


def _heading(outcome: Outcome) -> str:
    match outcome:
        case Rejected():
            return "This is no legal program here:"
        case CompileFailed():
            return "It does not compile:"
        case Mismatch():
            return "It runs, and its results are wrong:"
        case Crashed():
            return "It crashed:"
        case TimedOut(stage=stage, limit_s=limit_s):
            return f"It took too long ({stage}, limit {limit_s:g} s):"
        case Passed():
            raise ValueError("a program that passed has not failed")
        case _:
            assert_never(outcome)


def _said(outcome: Outcome) -> str:
    match outcome:
        case CompileFailed(log=log):
            return log
        case Passed():
            raise ValueError("a program that passed has not failed")
        case Rejected(message=message) | Mismatch(message=message) | Crashed(message=message):
            return message
        case TimedOut(message=message):
            return message
        case _:
            assert_never(outcome)


def _named_lines(program: str, said: str) -> Iterator[str]:
    """Lines of the program that a message names by their numbers, each once."""
    lines = program.split("\n")
    numbers = dict.fromkeys(int(found) for found in _LINE_NUMBER.findall(said))
    for number in list(numbers)[:MAX_QUOTED_LINES]:
        if 1 <= number <= len(lines):
            yield f"line {number}: {lines[number - 1].strip()}"


def _time(circumstance: Circumstance) -> str:
    passed = circumstance.passed
    kind = "measured" if passed.timing.kind == "measured" else "estimated"
    best = circumstance.baseline_us / max(passed.timing.median_us, 1e-9)
    floor = circumstance.floor_us / max(passed.timing.median_us, 1e-9)
    return (
        f"It is correct and takes {passed.timing.median_us:.3g} us ({kind}), {best:.3g} times as fast as the "
        f"baseline. Moving its "
        f"data once takes {circumstance.floor_us:.3g} us: that is {100 * floor:.3g} % of its time."
        f"{_adverse(passed.adverse)}"
    )


def _adverse(adverse: AdverseTiming | None) -> str:
    if adverse is None:
        return ""
    return f" On other inputs ({adverse.draw}) it takes {adverse.timing.median_us:.3g} us, which does not count."


def _profiled(program: str, circumstance: Circumstance, profile: Profile | None) -> Iterator[str]:
    passed = circumstance.passed
    gbs = circumstance.floor_bytes / max(passed.timing.median_us, 1e-9) / 1e3
    yield f"It moves its data at {gbs:.3g} GB/s."
    if profile is None:
        used = passed.resources
        yield (
            f"{used.registers} registers a thread, {used.spill_bytes} bytes spilled, {used.shared_bytes} bytes shared."
        )
        return
    yield "Its launches (counted by an interpreter, no hardware counters):" if _counted(profile) else "Its launches:"
    for launch in profile.launches:
        yield _launched(launch)
    for launch in profile.launches:
        yield from _hot_lines(program, launch)


def _counted(profile: Profile) -> bool:
    return any(launch.work is not None for launch in profile.launches)


def _launched(launch: LaunchProfile) -> str:
    told = [
        f"- {launch.kernel}: {launch.num_blocks} blocks of {launch.threads_a_block} threads, {launch.registers} "
        f"registers",
        f"{launch.spill_bytes} bytes spilled, {launch.shared_bytes} bytes shared",
        f"room for {100 * launch.occupancy:.0f} % of the warps",
    ]
    work = launch.work
    if work is not None:
        told.append(f"loads of {_share(work.load_sectors, work.load_requests)} sectors")
        told.append(f"stores of {_share(work.store_sectors, work.store_requests)}")
        if work.atomic_requests:
            told.append(f"{work.atomic_requests} atomic requests")
        if work.shared_requests:
            told.append(f"{_share(work.shared_wavefronts, work.shared_requests)} passes a shared request")
        told.append(f"{work.divergent_branches} divergent branches")
        told.append(f"{_share(work.lane_instructions, work.warp_instructions)} of 32 lanes at work")
        told.append(f"the longest warp takes {work.longest_warp_instructions} instructions")
    return ", ".join(told)


def _share(count: int, of: int) -> str:
    return f"{count / of:.3g}" if of else "0"


def _hot_lines(program: str, launch: LaunchProfile) -> Iterator[str]:
    lines = program.split("\n")
    for work in launch.work.lines[:MAX_HOT_LINES] if launch.work is not None else ():
        if 1 <= work.line <= len(lines):
            lanes = _share(work.lane_instructions, work.warp_instructions)
            yield (
                f"  line {work.line}, {work.warp_instructions} warp instructions, {lanes} lanes, {work.sectors} "
                f"sectors, "
                f"{work.bank_conflicts} bank conflicts: {lines[work.line - 1].strip()}"
            )
