"""What programs come to on their matrices: sizes of their formats, blocks, registers, beside the family program most alike.

    python -m benchmarks.measure.program_counts PACK PROGRAMS.jsonl [--width 5 7 26] [--out FILE]

PROGRAMS: lines `{"pattern": NAME, "operation": ..., "element_type": ..., "num_dense_cols": ..., "programs": [TEXT...]}`, as
`sample_policy` writes them. `--width`: formats that have a parameter of this name are counted with these widths, too.
Nothing is run: formats are built, and NVRTC compiles for sm_90. The result holds the texts.
"""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure.invention import digest, extracted, kinships_on
from benchmarks.origin import RESULTS, command, machine, source_commit, write_result
from services.evaluator.compiling.compiler import CompileError, Compiler
from services.trainer.offline.records import NUM_SMS
from sparsesmith.matrix.pack import read_pack
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

ARCHITECTURE = "sm_90"
WIDTH = "width"
Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    lines = [json.loads(line) for line in options.programs.read_text(encoding="utf-8").splitlines()]
    patterns = dict(read_pack(options.pack, {line["pattern"] for line in lines}))
    with Compiler(1, timeout_s=options.compile_limit_s) as compiler:
        rows = [row for line in lines for row in rows_of(line, patterns[line["pattern"]], compiler, options.width)]
    result = {
        "kind": "program_counts",
        "commit": source_commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command("benchmarks.measure.program_counts"),
        "machine": machine(),
        "num_sms": NUM_SMS,
        "rows": rows,
    }
    write_result(options.out, result)


def rows_of(line: Row, pattern: Pattern, compiler: Compiler, widths: Sequence[int]) -> list[Row]:
    """One for each program of a line."""
    operation, element_type, columns = line["operation"], line["element_type"], line["num_dense_cols"]
    workload = Workload(pattern=pattern.digest, operation=operation, element_type=element_type, num_dense_cols=columns)
    kin = kinships_on(pattern, operation, element_type, columns, line["programs"])
    circumstances = Circumstances(pattern, columns, NUM_SMS)
    problem, row_lengths = Problem(workload, pattern), _row_lengths(pattern)
    rows = []
    for text in line["programs"]:
        plain = bind_numbers(extracted(text), {}, circumstances, operation, element_type).text
        nearest = kin[text].nearest
        rows.append(
            {
                "matrix": line["pattern"],
                "workload": f"{operation} {element_type} {columns}",
                "row_lengths": row_lengths,
                "text": digest(text),
                "kind": kin[text].kind,
                "counts": counts_of(plain, problem, compiler, widths),
                "most_alike": counts_of(nearest, problem, compiler) if nearest else None,
                "program": text,
            }
        )
    return rows


def _row_lengths(pattern: Pattern) -> Row:
    lengths = pattern.row_lengths
    return {
        "rows": pattern.num_rows,
        "nonzeros": pattern.nnz,
        "mean": round(float(lengths.mean()), 2),
        "quantiles": {f"{share:g}": round(float(np.quantile(lengths, share)), 1) for share in (0.5, 0.9, 0.99, 1.0)},
    }


def counts_of(plain: str, problem: Problem, compiler: Compiler, widths: Sequence[int] = ()) -> Row:
    """Of a program of plain numbers. Raises InvalidProgram for what does not fit the matrix."""
    assert problem.pattern is not None
    workload = problem.workload
    program = parse_program(plain, workload.operation, workload.element_type)
    layout = program.format.build(problem.pattern, program.parameters)
    compiled = compiler.compile(program.source, ARCHITECTURE)
    if isinstance(compiled, CompileError):
        raise SystemExit(f"a program does not compile: {compiled.log}")
    others = widths if WIDTH in program.parameters else ()
    return {
        "format": program.format.name,
        "parameters": dict(program.parameters),
        "sizes": dict(layout.sizes),
        "launches": [
            {
                "kernel": each.kernel,
                "grid": each.grid,
                "blocks": prod(each.grid),
                "threads": prod(each.block),
                "registers": compiled.resources[each.kernel].registers,
                "spill_bytes": compiled.resources[each.kernel].spill_bytes,
            }
            for each in bind(program, layout, problem, NUM_SMS).launches
        ],
        "other_widths": {
            width: dict(program.format.build(problem.pattern, {**program.parameters, WIDTH: width}).sizes)
            for width in others
        },
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("programs", type=Path)
    parser.add_argument("--width", type=int, nargs="*", default=[])
    parser.add_argument("--compile-limit-s", type=float, default=60)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "program-counts.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
