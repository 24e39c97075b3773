"""What operators gain in solvers' loops: conjugate gradients, first-order programmes."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median

from benchmarks.report.results import Json, geometric_mean
from benchmarks.report.targets import marked

CG_AIMS = {"launched_over_csr": 1.5, "over_best": 1.3}
"""Geometric means of the matrices (issue 16): over cupyx with its CSR, over the library's best routine."""
PROGRAMME_AIMS = {"products_over_library": 1.7, "loop_over_library": 1.4}
"""Over SpMVOp ALG2: both products alone, the whole loop."""
PRODUCT_BYTES, VECTOR_BYTES = 12, 8
"""In float64: a value and a column of 4 bytes a nonzero, an element of a vector."""
ITERATION_VECTORS = 11
"""Read and written by the three launches beside the product (`benchmarks.solvers.cg_kernels`)."""
MANY_NNZ = 1_000_000
"""From there on a product is more than its launch."""


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
    return [*lines, "", *_means(result, named, CG_AIMS), *_iteration_lines(result), *_failures(result)]


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
    return [*lines, "", *_means(result, named, PROGRAMME_AIMS), *_bandwidth_lines(result), *_failures(result)]


def _iteration_lines(result: Json) -> Iterator[str]:
    """What an iteration is made of beside its product, where it was replayed."""
    rows = [row for row in _measured(result) if {"operator", "routine"} <= row["us_an_iteration_replayed"].keys()]
    small, large = ([row for row in rows if (row["nnz"] >= MANY_NNZ) == is_large] for is_large in (False, True))
    if not small or not large:
        return
    means = [geometric_mean(row["over_best"] for row in each) for each in (large, small)]
    ours = [row["us_an_iteration_replayed"]["operator"] for row in small]
    gained = median(
        row["us_an_iteration_replayed"]["routine"] - row["us_an_iteration_replayed"]["operator"] for row in small
    )
    yield (
        f"- replayed, over the best routine, by nonzeros: {means[0]:.2f}x ({len(large)} matrices of {MANY_NNZ:.0e} or more), {means[1]:.2f}x ("
        f"{len(small)} with fewer). There an iteration takes {min(ours):.1f} us or more whatever the matrix: the launch of a graph of the "
        f"product and three kernels (two sums, three updates of vectors), the same on both sides; the product gains {gained:.1f} us of it (median)"
    )
    copy_gbs, most = result["device"]["copy_bandwidth_gbs"], max(large, key=lambda row: row["rows"])
    vectors_us = ITERATION_VECTORS * VECTOR_BYTES * most["rows"] / copy_gbs / 1e3
    yield (
        f"- of large matrices with few nonzeros a row the vectors are most of it: {most['name']}, {vectors_us:.1f} of "
        f"{most['us_an_iteration_replayed']['operator']:.1f} us for the {ITERATION_VECTORS} that the three kernels read and write, at the copy "
        "bandwidth"
    )


def _bandwidth_lines(result: Json) -> list[str]:
    """By kind of programme how near both sides are to the copy bandwidth, and what reaching it would gain."""
    device = result.get("device", {})
    if (copy_gbs := device.get("copy_bandwidth_gbs")) is None:
        return []
    kinds: dict[str, list[Json]] = defaultdict(list)
    for row in _measured(result):
        kinds[row["name"].rpartition("-")[0]].append(row)
    if not kinds:
        return []
    lines = [
        "",
        f"Both products as a share of this run's copy bandwidth, {copy_gbs:,.0f} GB/s, by the bytes that cannot be left out: a value and a column of "
        "4 bytes a nonzero, both vectors once. The largest gain is that of a kernel that moves these bytes at the copy bandwidth:",
        "",
        "| programmes | operator | library | over it | largest gain |",
        "|---|---|---|---|---|",
    ]
    for kind, rows in [*kinds.items(), ("all", _measured(result))]:
        shares = [geometric_mean(_of_a_copy(row, side, copy_gbs) for row in rows) for side in ("operator", "library")]
        over = geometric_mean(row["products_over_library"] for row in rows)
        lines.append(f"| {kind} | {shares[0]:.0%} | {shares[1]:.0%} | {over:.2f}x | {1 / shares[1]:.2f}x |")
    return [
        *lines,
        "",
        f"A gain of {PROGRAMME_AIMS['products_over_library']:g}x is out of reach of any such kernel where the largest is less; where it is more and the share is small, "
        "a vector is read in scattered order, and each element brings a sector of 32 bytes, for both sides.",
    ]


def _of_a_copy(row: Json, side: str, copy_gbs: float) -> float:
    """Of A x and A^T y."""
    num_bytes = 2 * (PRODUCT_BYTES * row["nnz"] + VECTOR_BYTES * (row["rows"] + row["cols"]))
    return float(num_bytes / row["us_of_both_products"][side] / 1e3 / copy_gbs)


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
