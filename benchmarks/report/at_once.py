"""Sections on kernels at once: how soon they are there, formats built on the device, equal bits."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

from benchmarks.report.break_even import STOOD_IN
from benchmarks.report.results import Json

STAGES = ("choose", "upload", "format", "compile_wait", "check")
"""All else on the way from pattern to kernel, messages between processes among it, is `other`."""


def _other_ms(result: Json, nnz: float) -> float:
    """Of the first answers of a class, in the median."""
    rows = [row for row in result["rows"] if row["class_nnz"] == nnz]
    shown = [sum(row["first_stages_ms"].get(stage, 0.0) for stage in STAGES) for row in rows]
    return float(median(row["first_ms"] - ms for row, ms in zip(rows, shown, strict=True)))


def instant_lines(result: Json) -> list[str]:
    """By nonzeros: the aim, the first answer, one whose text was compiled before, the stages of the first; of each
    matrix these and what is left add up to its first answer."""
    lines = [
        f"| nonzeros | matrices | aim, ms | first answer | slowest | text known | {' | '.join(STAGES)} | other |",
        "|---" * (7 + len(STAGES)) + "|",
    ]
    for entry in result["classes"]:
        stages = " | ".join(f"{entry['first_stages_ms'].get(stage, 0.0):.0f}" for stage in STAGES)
        lines.append(
            f"| {entry['nnz']:.0e} | {entry['matrices']} | {entry['target_ms']} | {entry['first_ms']:.0f} | "
            f"{entry['worst_first_ms']:.0f} | {entry['again_ms']:.0f} | {stages} | {_other_ms(result, entry['nnz']):.0f} |"
        )
    notes = []
    if speeds := [row["worth"]["speed"] for row in result["rows"] if "worth" in row]:
        notes.append(f"Speed over the searched kernel: {median(speeds):.2f} in the median, {min(speeds):.2f} at least.")
    if result.get("stands_in"):
        notes.append(STOOD_IN)
    return [*lines, "", " ".join(notes)] if notes else lines


def http_lines(result: Json) -> list[str]:
    """By nonzeros: what the client waited, and what of it was the service's and the evaluator's own; medians."""
    lines = [
        "| nonzeros | matrices | aim, ms | from POST to kernel | slowest | of it from the parsed matrix | of it choice and evaluator |",
        "|---" * 7 + "|",
    ]
    for entry in result["classes"]:
        lines.append(
            f"| {entry['nnz']:.0e} | {entry['matrices']} | {entry['target_ms']} | {entry['http_ms']:.0f} | "
            f"{entry['slowest_http_ms']:.0f} | {entry['tuning_ms']:.0f} | {entry['evaluator_ms']:.0f} |"
        )
    without = [row["name"] for row in result["rows"] if "failed" in row]
    return [*lines, "", f"No kernel was handed out for {', '.join(without)}."] if without else lines


def builder_lines(result: Json) -> list[str]:
    """By format and nonzeros, of the patterns that both built; what the device left to the host is counted."""
    groups: dict[tuple[str, float], list[Json]] = defaultdict(list)
    for row in result["rows"]:
        if "refused" not in row:
            groups[row["format"], row["class_nnz"]].append(row)
    lines = [
        "| format | nonzeros | patterns | on the device, ms | with a copy for the host | on the host, one thread | left to the host |",
        "|---" * 7 + "|",
    ]
    for (name, nnz), rows in sorted(groups.items()):
        built = [row for row in rows if "device_ms" in row]
        times = [_range(built, key) for key in ("device_ms", "fetched_ms")]
        left = len(rows) - len(built)
        cells = [name, f"{nnz:.0e}", str(len(rows)), *times, _range(rows, "host_ms"), str(left)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def determinism_lines(result: Json) -> list[str]:
    """How often bits differed, and what the promise costs."""
    whose = "winners" if result.get("searched", True) else "kernels that the cost model chose"
    words = [
        f"{result['runs']:,} runs of {result['matrices']} matrices' {whose}, in {result['contexts']} processes each: "
        f"{result['differing']} gave other bits than the first."
    ]
    if result["speedup_over_best_deterministic"] is not None:
        speed = result["speedup_over_best_deterministic"]
        words.append(f"Speed over the best deterministic routine: {speed:.2f}x in geometric mean.")
    return [" ".join(words)]


def _range(rows: Sequence[Json], key: str) -> str:
    """The median, the least and the most."""
    values = [row[key] for row in rows]
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})" if values else "-"
