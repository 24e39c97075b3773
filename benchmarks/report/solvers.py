"""What operators gain in solvers' loops: conjugate gradients, first-order programmes."""

from collections.abc import Sequence

from benchmarks.report.results import Json
from benchmarks.report.targets import marked

CG_AIMS = {"launched_over_csr": 1.5, "over_best": 1.3}
"""Geometric means of the matrices (issue 16): over cupyx with its CSR, over the library's best routine."""
PROGRAMME_AIMS = {"products_over_library": 1.7, "loop_over_library": 1.4}
"""Over SpMVOp ALG2: both products alone, the whole loop."""


def conjugate_lines(result: Json) -> list[str]:
    """A row a matrix, microseconds of an iteration launched and replayed, and the means."""
    lines = [
        "| matrix | rows | nnz | answer | operator, us | cupyx's CSR | best routine | over CSR | over best "
        "| replayed: operator, us | best routine | over best |",
        "|---" * 12 + "|",
    ]
    for row in _measured(result):
        launched, replayed = row["us_an_iteration"], row["us_an_iteration_replayed"]
        cells = [_us(launched, side) for side in ("operator", "csr", "routine")]
        cells += [_times(row[f"launched_{name}"]) for name in ("over_csr", "over_best")]
        cells += [_us(replayed, side) for side in ("operator", "routine")]
        cells.append(_times(row["over_best"]) if replayed else "-")
        lines.append(f"| {row['name']} | {row['rows']:,} | {row['nnz']:,} | {row['answer']} | {' | '.join(cells)} |")
    named = {
        "launched_over_csr": "launched, over cupyx with its CSR",
        "launched_over_best": "launched, over the best routine",
        "over_best": "replayed, over the best routine",
    }
    return [*lines, "", *_means(result, named, CG_AIMS), *_failures(result)]


def programme_lines(result: Json) -> list[str]:
    """A row a programme, both products and the whole iteration, and the means."""
    lines = [
        "| programme | rows | columns | nnz | answers | both products, us | library | over it | iteration, us | library "
        "| over it | extra MiB |",
        "|---" * 12 + "|",
    ]
    for row in _measured(result):
        cells: list[str] = []
        for times, ratio in (("us_of_both_products", "products"), ("us_an_iteration", "loop")):
            cells += [_us(row[times], side) for side in ("operator", "library")]
            cells.append(_times(row[f"{ratio}_over_library"]))
        sizes = " | ".join(f"{row[name]:,}" for name in ("rows", "cols", "nnz"))
        extra = f"{row['extra_bytes'] / 2**20:,.1f}"
        lines.append(f"| {row['name']} | {sizes} | {', '.join(row['answers'])} | {' | '.join(cells)} | {extra} |")
    named = {"products_over_library": "both products", "loop_over_library": "the whole loop"}
    return [*lines, "", *_means(result, named, PROGRAMME_AIMS), *_failures(result)]


def _means(result: Json, named: dict[str, str], aims: dict[str, float]) -> list[str]:
    lines = []
    for name, words in named.items():
        if (mean := result.get(name)) is not None:
            aim = aims.get(name)
            shown = f"{mean:.2f}x" if aim is None else f"{marked(f'{mean:.2f}x', mean >= aim)} (aim: {aim:g}x)"
            lines.append(f"- {words}: {shown}")
    return lines


def _measured(result: Json) -> Sequence[Json]:
    return [row for row in result["rows"] if "failed" not in row]


def _failures(result: Json) -> list[str]:
    return [f"- {row['name']} failed: {row['failed']}" for row in result["rows"] if "failed" in row]


def _us(times: Json, side: str) -> str:
    return f"{times[side]:.2f}" if side in times else "-"


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"
