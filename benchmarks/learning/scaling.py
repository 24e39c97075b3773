"""What 1,000 evaluators and a million records a day need: from measured units, by a command.

python -m benchmarks.learning.scaling measure [--records 4000]     the reward stream alone -> results/cpu/reward-stream.json
python -m benchmarks.learning.scaling write                        docs/scaling.md anew from the result files
python -m benchmarks.learning.scaling check                        exit 1 where it is not what they say
"""

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import RESULTS, ROOT, machine, source_commit, write_result

PAGE = ROOT / "docs" / "scaling.md"
BEGIN, END = "<!-- begin: benchmarks.learning.scaling -->", "<!-- end: benchmarks.learning.scaling -->"
DAY_S = 86_400
EVALUATORS = 1000
RECORDS_A_DAY = 1_000_000
PATTERN_BYTES = 12_000_004
"""Of a matrix of a million rows and two million nonzeros, as stored (results/cpu/memory.json)."""


@dataclass(frozen=True)
class Units:
    """What was measured of single parts."""

    graded_s: float
    """Programs a second of one evaluator on an H200, means over matrices of the slowest kind of workload."""
    stream: "StreamUnits | None"
    """None: not measured."""
    update_s: float
    """Seconds of an update of `update_records` on two CPU cores; on a GPU it was not measured alone."""
    update_records: int
    tokens: float
    """Of a program."""
    canary_s: float
    """Mean on an H200."""


@dataclass(frozen=True)
class StreamUnits:
    """Of the reward stream alone."""

    record_bytes: float
    published_s: float
    """Records a second that one Valkey takes from one evaluator's process."""
    read_s: float
    """... and that one trainer's process reads, parses and acknowledges."""
    load_average: float
    """Of the machine's, where nothing else should run."""


def units() -> Units:
    """From the result files."""
    throughput, update = _result("h200/throughput.json"), _result("cpu/trainer-update.json")
    canaries = _result("h200/online-guard.json")["versions"]["canary_s"]
    return Units(
        graded_s=min(row["a_second"] for row in throughput["rows"]),
        stream=_stream_units(),
        update_s=update["update_s"],
        update_records=update["records"],
        tokens=update["tokens"] / update["records"],
        canary_s=math.fsum(canaries) / len(canaries),
    )


def _stream_units() -> StreamUnits | None:
    if not (RESULTS / "cpu" / "reward-stream.json").is_file():
        return None
    told = _result("cpu/reward-stream.json")
    return StreamUnits(told["record_bytes"], told["published_a_second"], told["read_a_second"], told["load_average"])


def table(known: Units) -> str:
    """Two loads, a column each."""
    loads = (
        (f"{RECORDS_A_DAY:,} records a day", RECORDS_A_DAY / DAY_S),
        (f"{EVALUATORS:,} evaluators that never wait", EVALUATORS * known.graded_s),
    )
    rows: list[tuple[str, Callable[[float], str]]] = [
        ("records a second", lambda rate: f"{rate:,.1f}"),
        ("evaluators (H200)", lambda rate: f"{rate / known.graded_s:,.2f}"),
        ("tokens a second to sample", lambda rate: f"{rate * known.tokens:,.0f}"),
        ("trainers on two CPU cores each", lambda rate: f"{math.ceil(rate * known.update_s / known.update_records):,}"),
        ("seconds until the stream's 100,000 records are full, unread", lambda rate: f"{100_000 / rate:,.0f}"),
        ("updates of 512 within one canary's time", lambda rate: f"{rate * known.canary_s / 512:,.2f}"),
        *([] if known.stream is None else _stream_rows(known.stream)),
    ]
    lines = ["| | " + " | ".join(name for name, _ in loads) + " |", "|---|" + "---|" * len(loads)]
    lines += [f"| {name} | " + " | ".join(told(rate) for _, rate in loads) + " |" for name, told in rows]
    return "\n".join([*lines, "", _told(known)])


def _stream_rows(stream: StreamUnits) -> list[tuple[str, Callable[[float], str]]]:
    return [
        ("bytes a second through the stream", lambda rate: _bytes(rate * stream.record_bytes)),
        ("processes that publish, at their fastest", lambda rate: f"{math.ceil(rate / stream.published_s):,}"),
        ("trainer processes that only read", lambda rate: f"{math.ceil(rate / stream.read_s):,}"),
    ]


def _told(known: Units) -> str:
    """The units in words."""
    words = (
        f"Units: an evaluator grades {known.graded_s:.1f} programs a second (results/h200/throughput.json); an update of "
        f"{known.update_records} programs, {known.tokens:.0f} tokens each, takes {known.update_s:.0f} s on two CPU cores "
        f"(results/cpu/trainer-update.json); a canary {known.canary_s:.1f} s on an H200 (results/h200/online-guard.json)"
    )
    if known.stream is None:
        return f"{words}. What the stream itself takes was not measured yet."
    return (
        f"{words}; a record is {known.stream.record_bytes:,.0f} bytes, one Valkey takes {known.stream.published_s:,.0f} of them a second "
        f"from one process and gives {known.stream.read_s:,.0f} to one trainer, on two cores that {known.stream.load_average:.0f} "
        "processes shared (results/cpu/reward-stream.json)."
    )


def measure(options: argparse.Namespace) -> None:
    """Publish, read and acknowledge records of programs of the shipped policy's tokenizer."""
    from benchmarks.learning.trainer_update import make_records
    from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
    from sparsesmith.transport.connection import connect
    from sparsesmith.transport.stream import RewardStream

    records = [each.record for each in make_records(options.policy, 32)]
    with tempfile.TemporaryDirectory(prefix="ss-scaling-") as folder:
        server = EmbeddedValkey(Path(folder))
        server.start()
        stream = RewardStream(connect(server.address))
        began = time.monotonic()
        for number in range(options.records):
            stream.publish(records[number % 32].model_copy(update={"record_id": f"r{number}"}))
        published_s = options.records / (time.monotonic() - began)
        began, read = time.monotonic(), 0
        while deliveries := stream.read("trainer", 512, 10):
            stream.acknowledge([each.entry_id for each in deliveries])
            read += len(deliveries)
        read_s = read / (time.monotonic() - began)
        server.stop()
    result = {
        "kind": "reward_stream",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": "python -m benchmarks.learning.scaling measure",
        "machine": machine(),
        "records": options.records,
        "record_bytes": round(sum(len(each.model_dump_json()) for each in records) / len(records)),
        "published_a_second": round(published_s, 1),
        "read_a_second": round(read_s, 1),
        "load_average": os.getloadavg()[0],
    }
    path = RESULTS / "cpu" / "reward-stream.json"
    write_result(path, result)
    print(json.dumps(result, indent=1))


def page(text: str, told: str) -> str:
    """The page with the table between its marks."""
    return text[: text.index(BEGIN) + len(BEGIN)] + "\n" + told + "\n" + text[text.index(END) :]


def _result(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return found


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("--records", type=int, default=4000)
    measuring.add_argument("--policy", type=Path, default=Path("models/sparsesmith-28m"))
    commands.add_parser("write")
    commands.add_parser("check")
    options = parser.parse_args()
    if options.command == "measure":
        measure(options)
        return 0
    before = PAGE.read_text(encoding="utf-8")
    after = page(before, table(units()))
    if options.command == "check":
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
