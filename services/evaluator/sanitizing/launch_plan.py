"""A program with its inputs as files: all that a process needs to run it once, without packages.

plan.json   buffers, arguments, launches
program.cubin
0, 1, ...   what buffers hold at the start; one without a file is never written before the program runs
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from services.evaluator.device import Draw
from sparsesmith.formats.format import Layout
from sparsesmith.program.binding import BoundProgram

PLAN = "plan.json"
CUBIN = "program.cubin"


def write_plan(folder: Path, bound: BoundProgram, cubin: bytes, layout: Layout, draw: Draw) -> None:
    """For `launch.py`. Outputs and scratch have no contents: who reads them first reads what nobody wrote."""
    contents = _contents(bound, layout, draw)
    files = {name: str(number) for number, name in enumerate(contents)}
    for name, file in files.items():
        (folder / file).write_bytes(np.ascontiguousarray(contents[name]).tobytes())
    (folder / CUBIN).write_bytes(cubin)
    shared_bytes = bound.shared_bytes
    plan = {
        "buffers": {each.name: {"bytes": each.num_bytes, "file": files.get(each.name)} for each in bound.buffers},
        "arguments": [
            {"size": bound.sizes[each.name]} if each.role == "size" else {"buffer": each.name}
            for each in bound.arguments
        ],
        "launches": [
            {
                "kernel": each.kernel,
                "grid": list(each.grid),
                "block": list(each.block),
                "shared_bytes": each.shared_bytes,
                "most_shared_bytes": shared_bytes[each.kernel],
            }
            for each in bound.launches
        ],
    }
    (folder / PLAN).write_text(json.dumps(plan), encoding="utf-8")


def _contents(bound: BoundProgram, layout: Layout, draw: Draw) -> Mapping[str, "np.ndarray"]:
    contents: dict[str, np.ndarray] = dict(layout.indices)
    for buffer in bound.buffers:
        if buffer.role == "values":
            contents[buffer.name] = layout.pack(draw.values)
        elif buffer.role in ("input", "inout"):
            contents[buffer.name] = draw.inputs[buffer.name]
    held = {buffer.name for buffer in bound.buffers}
    return {name: array for name, array in contents.items() if name in held}
