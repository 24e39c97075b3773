"""Milliseconds that a storage format takes to be built: by the GPU from CSR in its memory, and by the host.

    python -m benchmarks.measure.device_builders [--nnz 1e5 1e6 1e7] [--runs 5] [--seconds S] [--host-only] [--out FOLDER]

`device_ms`: until the last array is written in the GPU's memory, what is read back on the way included. `fetched_ms`: with a
copy for the host, as an evaluator makes it. `host_ms`: one thread. Medians; the first run of each, which compiles, is not
counted. A row where the pattern does not fit the format says why. Written after every row.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure.instant import named_patterns
from benchmarks.origin import ROOT, command, source_commit
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.bin_limits import best_limits
from sparsesmith.formats.format import Format, Parameters, ParameterValue
from sparsesmith.formats.row_bins import count_lengths
from sparsesmith.matrix.pattern import Pattern


def choices(pattern: Pattern) -> Iterator[tuple[str, Mapping[str, ParameterValue]]]:
    """What winners ask for."""
    limits = ",".join(map(str, best_limits(count_lengths(pattern.row_lengths), 4, 32)))
    yield "row_bins", {"widths": limits, "steps": 4}
    yield "row_bins", {"widths": limits, "steps": 4, "index": "u16"}
    yield "ell", {}
    yield "sell", {"sigma": 1, "index": "u16"}
    yield "sell", {"sigma": 0}
    yield "csr_tiles", {"long_rows": "split"}
    yield "dia", {}
    yield "bsell", {"block_rows": 3, "block_cols": 3}


def main() -> None:
    options = _options()
    end = time.monotonic() + options.seconds
    device = None if options.host_only else Device()
    rows: list[dict[str, Any]] = []
    for nnz in options.nnz:
        for name, pattern in named_patterns(nnz).items():
            for format_name, given in choices(pattern):
                if time.monotonic() > end:
                    return
                format_ = format_named(format_name)
                parameters = complete_parameters(format_, given)
                row = {"name": name, "class_nnz": nnz, "nnz": pattern.nnz, "format": format_name, **given}
                rows.append(row | _measured(pattern, format_, parameters, device, options.runs))
                print(rows[-1], flush=True)
                _write(rows, device, options)


class Device:
    """A GPU that builds."""

    def __init__(self) -> None:
        import cupy

        from services.evaluator.cuda.building import CudaMachine

        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._stream.use()
        self._machine = CudaMachine(self._stream)
        self.name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()

    def building(
        self, pattern: Pattern, format_: Format, parameters: Parameters, *, fetched: bool
    ) -> Callable[[], object] | None:
        """None: the device leaves it to the host."""
        from services.evaluator.cuda.building import host_copy
        from sparsesmith.formats.on_device.catalogue import build_on_device
        from sparsesmith.formats.on_device.machine import DeviceCsr

        arrays = map(self._machine.upload, (pattern.row_offsets, pattern.col_indices))
        csr = DeviceCsr(pattern.num_rows, pattern.num_cols, pattern.nnz, *arrays)

        def build() -> bool:
            built = build_on_device(self._machine, csr, format_, parameters, pattern)
            if fetched and built is not None:
                host_copy(built, self._machine)
            self._stream.synchronize()
            return built is not None

        return build if build() else None


def _measured(
    pattern: Pattern, format_: Format, parameters: Parameters, device: Device | None, num_runs: int
) -> dict[str, Any]:
    try:
        found: dict[str, Any] = {"host_ms": _median_ms(lambda: format_.build(pattern, parameters), num_runs)}
        if device is not None:
            for name, fetched in (("device_ms", False), ("fetched_ms", True)):
                build = device.building(pattern, format_, parameters, fetched=fetched)
                if build is None:
                    return found | {"not_built_on_device": "the device leaves this pattern to the host"}
                found[name] = _median_ms(build, num_runs)
    except InvalidProgram as error:
        return {"refused": error.message}
    return found


def _median_ms(build: Callable[[], object], num_runs: int) -> float:
    build()
    times = []
    for _ in range(num_runs):
        began = time.perf_counter()
        build()
        times.append((time.perf_counter() - began) * 1e3)
    return round(statistics.median(times), 3)


def _write(rows: list[dict[str, Any]], device: Device | None, options: argparse.Namespace) -> None:
    result = {
        "kind": "device_builders",
        "device": None if device is None else device.name,
        "commit": options.commit or source_commit(),
        "command": command("benchmarks.measure.device_builders"),
        "cpu_cores": os.cpu_count(),
        "rows": rows,
    }
    folder = options.out / ("cpu" if device is None else "h200")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "device_builders.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nnz", type=float, nargs="+", default=[1e5, 1e6, 1e7])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1200, help="no row is begun after this time")
    parser.add_argument("--host-only", action="store_true", help="where there is no GPU")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    return parser.parse_args()


if __name__ == "__main__":
    main()
