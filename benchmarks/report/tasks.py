"""The section on tasks: ours over their naive programs and over libraries, beside what FSR published of its own."""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.measure.task_groups import REDUCTIONS, best_us, is_compared, require_one_device, slower_than_a_library
from benchmarks.report.results import Json, geometric_mean
from sparsesmith.operations.catalogue import our_tasks

FSR: Mapping[str, tuple[float, float]] = {
    "sigmoid": (1.20, 1.07),
    "matmul": (1.42, 5.26),
    "max_pool3d": (1.13, 1.02),
    "layer_norm": (13.1, 22.4),
    "conv2d": (1.02, 1.05),
    "attention": (0.70, 11.1),
    "mse": (27.8, 36.7),
    "transpose": (1.77, 1.56),
    "reverse": (1.03, 1.16),
    "relu": (1.24, 1.05),
    "top_k": (6.06, 5.96),
    "bubble_sort": (1.31, 1.14),
    "copy": (1.37, 1.09),
    "sum": (40.1, 41.3),
    "dot": (60.0, 102.3),
    "prefix_sum": (1.00, 0.90),
    "cross_entropy": (12.95, 1.96),
    "monte_carlo": (100.8, 179.3),
    "histogram": (18.0, 25.5),
    "least_squares": (4.86, 68.3),
}
"""Speed-ups over its own naive code that the table of FSR's repository (KernelPilot-V1-Basic-CUDA-Samples) names, on a
GTX 1660 SUPER and an RTX 3090 Ti."""

INTRO = (
    "Each task is tuned by the system's own means (first programs and their knobs, without a model) and compared with its naive program and with "
    "the best library row (PyTorch, CUB, the driver's copy, cuBLASLt); geometric means over sizes, where the naive program counts if nothing is "
    "faster. *Adverse*: the time on inputs that are hard on usual programs over the time on the usual ones, of tasks whose times depend on data. FSR "
    "(CUDA-LLM) has the same tasks on a GTX 1660 SUPER and an RTX 3090 Ti over naive programs of its own: other GPUs and other baselines, so that "
    "the columns say which tasks gain, not who is faster."
)


CAUSES: Mapping[str, str] = {
    "matmul": "ours and cuBLAS's are both float32 without tensor cores, which would round to TensorFloat-32; ours has tiles of 64 or 128 by 64 or 128 that "
    "cp.async brings, 2 or 3 deep, and leaves the inner loop to the compiler; it has no TMA, no warps that only load, and no order of blocks for the L2 "
    "cache. Which of these it is was not shown by a profiler",
    "top_k": "two launches, of which the second sorts in one block: at 2^10 entries there is little to move, and what is left is latency",
    "softmax": "at the commits of these rows the programs read each row three times, the later two from the cache, by single numbers and not by packs of 16 "
    "bytes, and take every exponential twice; nothing of a row stays in registers. `row_in_registers`, written since, does otherwise and was not measured",
    "prefix_sum": "behind each tile's own sum a block waits for the tiles before it with its whole tile at hand, moves it through shared memory twice by single "
    "numbers and not by packs of 16 bytes, and a launch of its own clears the states; a tile's sum and its state are two words with a fence between, where CUB "
    "has one word",
}
"""Of tasks that a library is faster at, from reading our programs; none is proved by counters of the hardware."""
LONG_S = 60.0
"""Of a size: longer ones are listed with the stage that took most."""
MODEL_CHANCES = ("pass_at_1", "pass_at_5")
LOOP_INTRO = (
    "Each search begins with the same first programs; the gains are over the fastest of those, geometric means over tasks. *Solved*: tasks at which an "
    "answer of the model itself passed, of those at which it answered at all; *graded*: answers that were graded before the search's time ended; pass@1 and pass@5 are of answers to a task's words alone. A model served on the GPU that grades disturbs "
    "times: gains of a hundredth say nothing."
)


def tasks_section(results: Iterable[Json]) -> list[str]:
    """Of runs on GPUs where there are any, one after another, else of the interpreter's estimates; empty without
    either. Raises ValueError for a run with rows of two devices."""
    runs = [each for each in results if each.get("kind") == "tasks"]
    measured = [each for each in runs if each["times"] == "measured"]
    parts = ["## Tasks", "", INTRO, ""] if runs else []
    for run in measured or runs:
        require_one_device(run["rows"], run["device"]["name"])
        parts += [f"### {run['device']['name']}", "", *_head(run), "", *tasks_table(run["rows"]), ""]
    return parts


def loop_section(results: Iterable[Json]) -> list[str]:
    """What the loop of `refine` brings with a model, by how much it is told; of GPUs; empty without a run there."""
    runs = [each for each in results if each.get("kind") == "refine_ablation" and each["times"] == "measured"]
    return ["## The loop with a model", "", LOOP_INTRO, "", *loop_table(runs), ""] if runs else []


def loop_table(runs: Sequence[Json]) -> list[str]:
    """A writer a line."""
    lines = [
        "| writer, model | tasks | solved | pass@1 | pass@5 | graded | tokens read / written | seconds of answers | "
        "latency / + profile / + suggestions |",
        "|---" * 9 + "|",
    ]
    for run in runs:
        writer, model, gains = run["writer"], run["model"], run["over_first_programs"]
        chances = [f"{model[name]:g}" if model.get(name) is not None else "-" for name in MODEL_CHANCES]
        solved, graded = (
            (f"{model['solved']} of {model['tasks']}", f"{model['graded']} of {model['answers']}")
            if model
            else ("-", "-")
        )
        told = [solved, *chances, graded]
        tokens = f"{model['prompt_tokens']:g} / {model['completion_tokens']:g}" if model else "-"
        gained = " / ".join("-" if gain is None else f"{gain:.3f}x" for gain in gains.values())
        name = ", ".join(filter(None, (writer["name"], writer["model"])))
        seconds = f"{model['seconds']:g}" if model else "-"
        lines.append(f"| {name} | {run['tasks']} | {' | '.join(told)} | {tokens} | {seconds} | {gained} |")
    budgets = {
        f"{run['device']['name']}, commit {run['commit']}: {run['budget']['candidates']} candidates and "
        f"{run['budget']['seconds']:g} s a search, preset {run['budget']['preset'] or 'none'}"
        for run in runs
    }
    return [*lines, "", *(f"{budget}." for budget in sorted(budgets))]


def tasks_table(rows: Sequence[Json]) -> list[str]:
    """A task a line; FSR's means below."""
    lines = ["| task | over naive | over the best library | adverse | sizes | FSR, 1660S / 3090Ti |", "|---" * 6 + "|"]
    for task in sorted({row["task"] for row in rows}):
        own = [row for row in rows if row["task"] == task]
        timed = [row for row in own if row.get("best") and best_us(row) > 0]
        told = f"{FSR[task][0]:g}x / {FSR[task][1]:g}x" if task in FSR else "-"
        adverse = [row["best"]["adverse"]["us"] / row["best"]["us"] for row in timed if "adverse" in row["best"]]
        cells = (_over(timed, "naive_us"), _over(timed, "library_us"), _mean(adverse))
        lines.append(f"| {task} | {' | '.join(cells)} | {len(timed)} of {len(own)} | {told} |")
    compared = [row for row in rows if is_compared(row) and best_us(row) > 0]
    others = {*FSR, *(row["task"] for row in rows)} - {*REDUCTIONS}
    for name, chosen in (
        ("all", {*REDUCTIONS, *others}),
        ("seven reductions", {*REDUCTIONS}),
        ("the others", others),
    ):
        own = [row for row in compared if row["task"] in chosen]
        theirs = [geometric_mean([pair[side] for task, pair in FSR.items() if task in chosen]) for side in (0, 1)]
        means = (_over(own, "naive_us"), _over(own, "library_us"))
        lines.append(f"| **{name}** | {' | '.join(means)} | | {len(own)} | {theirs[0]:.2f}x / {theirs[1]:.2f}x |")
    return lines


def _head(run: Json) -> list[str]:
    kind = "measured" if run["times"] == "measured" else "ESTIMATED by a traffic model: no statement about a device"
    told = f"{run['device']['name']}, {kind}; {run['date']}, commit {run['commit']}; `{run['command']}`."
    slower = slower_than_a_library(run["rows"])
    lines = [f"{told} {run['solved']} of {run['tasks']} tasks solved at every size that was asked for."]
    if run["sizes_left_out"]:
        lines.append(f"{run['sizes_left_out']} sizes were left out: what is right of them takes too long on the host.")
    if gain := run.get("search_and_changes_over_starting"):
        mutated, sizes = run["mutated_over_best"], run["sizes_that_were_changed"]
        lines.append(
            f"Tuner and mutation over the fastest starting program with the first values of its knobs: {gain:.2f}x at {sizes} "
            f"sizes (geometric mean); of that mutation behind the tuner {mutated:.2f}x."
        )
    if unreached := sizes_not_reached(run["rows"]):
        lines.append(f"Sizes without a row, at which this run did not arrive: {', '.join(unreached)}.")
    if unsolved := [f"{row['task']} {row['axes']}: {row['failed']}" for row in run["rows"] if "failed" in row]:
        lines.append(f"Failed: {'; '.join(unsolved)}.")
    if slower:
        lines.append(f"Below 0.9 of the best library's speed: {', '.join(slower)}.")
        known = {each.split(" ")[0] for each in slower}
        lines += [f"{task}: {cause}." for task, cause in CAUSES.items() if task in known]
    if long := [_told_of_long(row) for row in run["rows"] if row["seconds"] > LONG_S]:
        lines.append(f"Longer than {LONG_S:g} s: {', '.join(long)}.")
    return lines


def sizes_not_reached(rows: Sequence[Json]) -> list[str]:
    """Published sizes of the tasks of a run that was cut off, where it went through published sizes at all."""
    known = {task.name: task.published for task in our_tasks()}
    asked = {name: known[name] for name in sorted({row["task"] for row in rows}) if name in known}
    there = [(row["task"], row["axes"]) for row in rows]
    if not any((name, axes) in there for name, published in asked.items() for axes in published):
        return []
    return [
        f"{name} {dict(axes)}" for name, published in asked.items() for axes in published if (name, axes) not in there
    ]


def _told_of_long(row: Json) -> str:
    told = f"{row['task']} {row['axes']}: {row['seconds']:.0f} s"
    stages = row.get("stages_s")
    if not stages:
        return f"{told} (stages were not kept)"
    longest = max(stages, key=lambda stage: float(stages[stage]))
    return f"{told} ({longest} {stages[longest]:.0f} s)"


def _over(rows: Sequence[Json], other: str) -> str:
    return _mean([row[other] / best_us(row) for row in rows if other in row])


def _mean(ratios: Sequence[float]) -> str:
    return f"{geometric_mean(ratios):.2f}x" if ratios else "-"
