"""Programs that a choice without measurements comes to for many matrices: worth compiling before anybody asks.

`python -m benchmarks.tuning.usual` finds them. Programs that hold numbers of their matrix are hardly ever among them.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from sparsesmith.families.catalogue import FAMILIES
from sparsesmith.program.program import KernelProgram, parse_program

USUAL_FILE = Path(__file__).with_name("usual.json")


def usual_programs() -> Iterator[KernelProgram]:
    """Each once, the one that most matrices come to first. What no family writes any more is passed over."""
    seen = set()
    for row in json.loads(USUAL_FILE.read_text(encoding="utf-8")):
        family, element_type, columns = FAMILIES.get(row["family"]), row["element_type"], row.get("num_dense_cols", 1)
        if family is not None and family.accepts(row["parameters"], element_type, columns):
            text = family.render(row["parameters"], element_type, columns)
            program = parse_program(text, family.operation, element_type)
            if program.source not in seen:
                seen.add(program.source)
                yield program
