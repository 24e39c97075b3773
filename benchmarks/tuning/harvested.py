"""What a harvest of mutants has brought: its lines, their file, what they come to (see `benchmarks.tuning.harvest`).

A line is a `parent` (a program, its family, its times), a `mutant` of it, or the end of a `workload`; each names its
workload. A mutant was made by chance unless `chosen` says how. A packed file begins with a line `harvest` that names
the device.
"""

import json
import lzma
import platform
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.measure.measured import MatrixEntry, matrix_entries
from benchmarks.origin import device_folder, source_commit, write_result
from benchmarks.report.results import NNZ_CLASSES, geometric_mean
from services.trainer.offline.text_files import open_text
from sparsesmith_proto.kernel import DeviceDescription

MOST_PACKED_BYTES = 6 * 2**20
GAINS = (1.02, 1.05)
LIKELY = "likely"
"""`chosen` of a mutant that is one of what a search ends with."""

Line = dict[str, Any]


def key_of(line: Mapping[str, Any]) -> str:
    """Of a workload."""
    return f"{line['pattern']} {line['operation']} {line['element_type']} {line['num_dense_cols']}"


def read_lines(files: Iterable[Path]) -> Iterator[Line]:
    """Of parts or of a packed file; the last line of an interrupted part may be half a line, and is left out."""
    for file in files:
        with open_text(file, "r") as lines:
            for line in lines:
                if line.endswith("\n"):
                    yield json.loads(line)


def cut_half_line(file: Path) -> None:
    """Whoever appends begins a line of its own."""
    if file.is_file() and not (text := file.read_bytes()).endswith(b"\n"):
        file.write_bytes(text[: text.rfind(b"\n") + 1])


def pack(folder: Path, out: Path, commit: str = "") -> None:
    """All parts of a folder in one file, workload by workload. Raises ValueError where it is too large to be kept."""
    lines = [line for line in read_lines(sorted(folder.glob("part-*.jsonl"))) if line["kind"] != "workload"]
    lines.sort(key=lambda line: (key_of(line), line.get("parent", line.get("number", 0)), line["kind"] != "parent"))
    device = json.loads((folder / "device.json").read_text(encoding="utf-8"))
    head = {"kind": "harvest", "device": device, "commit": commit or source_commit()}
    with lzma.open(out, "wt", preset=9 | lzma.PRESET_EXTREME, encoding="utf-8") as file:
        for line in (head, *lines):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")
    size = out.stat().st_size
    print(f"{sum(line['kind'] == 'mutant' for line in lines)} mutants, {size} bytes")
    if size > MOST_PACKED_BYTES:
        raise ValueError(f"{out} has {size} bytes: at most {MOST_PACKED_BYTES} are kept")


def report(harvests: Sequence[Path], out: Path, command: str) -> dict[str, Any]:
    """What came of harvests of one kind of device, whose workloads are different ones, as a result file."""
    lines = list(read_lines(harvests))
    heads = [line for line in lines if line["kind"] == "harvest"]
    entries, tried = matrix_entries(), [line for line in lines if line["kind"] == "mutant"]
    mutants, likely = ([line for line in tried if ("chosen" in line) is is_chosen] for is_chosen in (False, True))
    result = {
        "kind": "harvest",
        "device": heads[-1]["device"],
        "commit": ", ".join(head["commit"] for head in heads),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "command": command,
        "records": ", ".join(file.name for file in harvests),
        "workloads": len({key_of(line) for line in tried}),
        "parents": sum(line["kind"] == "parent" for line in lines),
        "all": shares(mutants),
        **({LIKELY: shares(likely), "likely_by_workload": _grouped(likely, _workload)} if likely else {}),
        "over_tuner": over_tuner(lines),
        "by_workload_and_size": _grouped(mutants, lambda line: f"{_workload(line)}, {_size(entries, line)}"),
        "by_deed": _grouped([each for each in mutants if " + " not in each["deed"]], lambda line: line["deed"]),
        "by_mutator": _grouped(mutants, lambda line: _mutators(line["deed"])),
    }
    file = out / device_folder_of(heads[-1]["device"]) / "harvest.json"
    write_result(file, result)
    return result


def shares(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many passed, and were faster than their parent by so much beside it; the best and the median gain."""
    gains = sorted(line["gain"] for line in lines if "gain" in line)
    count = max(1, len(lines))
    outcomes = Counter(line["outcome"] for line in lines)
    return {
        "mutants": len(lines),
        "passed": round(outcomes["passed"] / count, 4),
        **{
            f"faster_{round(100 * gain - 100)}": round(sum(each >= gain for each in gains) / count, 4) for gain in GAINS
        },
        "median_gain": gains[len(gains) // 2] if gains else None,
        "best_gain": gains[-1] if gains else None,
        "outcomes": dict(outcomes),
    }


def over_tuner(lines: Sequence[Line]) -> dict[str, Any]:
    """Speed of each workload's best child over the tuner's best program; 1 where no child was faster. The best of many
    times that vary, so rather too high than too low."""
    tuned: dict[str, dict[int, float]] = defaultdict(dict)
    for line in lines:
        if line["kind"] == "parent":
            tuned[key_of(line)][line["number"]] = line["tuned_us"]
    speeds = dict.fromkeys(tuned, 1.0)
    for line in lines:
        if line["kind"] == "mutant" and "gain" in line:
            parents = tuned[key_of(line)]
            speed = line["gain"] * min(parents.values()) / parents[line["parent"]]
            speeds[key_of(line)] = max(speeds[key_of(line)], speed)
    return {
        "geometric_mean": round(geometric_mean(speeds.values()), 4),
        "by_workload": {key: round(speed, 4) for key, speed in sorted(speeds.items())},
    }


def _grouped(lines: Iterable[Line], name: Callable[[Line], str]) -> dict[str, Any]:
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[name(line)].append(line)
    return {key: shares(groups[key]) for key in sorted(groups)}


def _workload(line: Line) -> str:
    columns = f" {line['num_dense_cols']}" if line["operation"] == "spmm" else ""
    return f"{line['operation']}{columns} {line['element_type']}"


def _size(entries: Mapping[str, MatrixEntry], line: Line) -> str:
    nnz = entries[line["pattern"]].nnz
    return next(each.name for each in NNZ_CLASSES if each.low <= nnz < each.high)


def _mutators(deed: str) -> str:
    names = [each.partition(":")[0] for each in deed.split(" + ")]
    return names[0] if len(names) == 1 else f"{len(names)} changes"


def device_folder_of(device: Mapping[str, Any]) -> str:
    return device_folder(DeviceDescription.model_validate(device))
