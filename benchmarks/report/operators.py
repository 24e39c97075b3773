"""What operators gain where they are used: A^T, training, calls, the promises of docs/operator.md."""

from collections.abc import Iterator, Sequence

from benchmarks.report.results import Json
from benchmarks.report.targets import marked

KIB = 1024
MOST_US_OF_A_CALL = {"c": 3.0, "python_out": 8.0, "torch_op": 12.0}
MOST_SCALED_OVER_PLAIN = 1.05
LEAST_OF_A_COPY = 0.5
"""Aims of issue 16."""
VECTORS_BESIDE = 3


def transposed_lines(result: Json) -> list[str]:
    """A row a matrix, warm and cold, and the means."""
    lines = [
        "| matrix | nnz | copy over op(A) = T | copy over an explicit A^T | shared over op(A) = T | the same, cold "
        "| extra KiB, copy | shared |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows, failed = _measured_and_failed(result)
    for row in rows:
        sides = (("copy", "of_stored"), ("copy", "of_copy"), ("shared", "of_stored"))
        warm = " | ".join(_over(row, "us", *side) for side in sides)
        cold = ", ".join(_over(row, "cold_us", *side) for side in sides)
        extra = " | ".join(f"{row['extra_bytes'][storage] / KIB:,.0f}" for storage in ("copy", "shared"))
        lines.append(f"| {row['name']} | {row['nnz']:,} | {warm} | {cold} | {extra} |")
    means = [f"- {name.replace('_', ' ')}: {mean:.2f}x" for name, mean in result.items() if "_over_" in name]
    return [*lines, "", *means, *failed]


def epoch_lines(result: Json) -> list[str]:
    """A row a graph."""
    lines = [
        "| graph | nodes | nnz | epoch, ms | PyG's messages | torch's CSR | over PyG | over CSR |",
        "|---" * 8 + "|",
    ]
    rows, failed = _measured_and_failed(result)
    for row in rows:
        times = " | ".join(
            f"{row['us_an_epoch'][side] / 1e3:.2f}" if side in row["us_an_epoch"] else "-"
            for side in ("operator", "pyg", "pyg_csr")
        )
        ratios = " | ".join(f"{row[name]:.2f}x" if name in row else "-" for name in ("over_pyg", "over_pyg_csr"))
        lines.append(f"| {row['name']} | {row['nodes']:,} | {row['nnz']:,} | {times} | {ratios} |")
        failed += [f"- {side} did not run: {reason}" for side, reason in row["failed_sides"].items()]
    return [*lines, "", *failed]


def promise_lines(result: Json) -> list[str]:
    """alpha and beta by matrix, then the single facts."""
    lines = [
        "| matrix | nnz | scaled over plain | bytes over plain | bytes with a second kernel | y = A x and a kernel that adds, over scaled |",
        "|---|---|---|---|---|---|",
    ]
    facts: list[str] = []
    rows, failed = _measured_and_failed(result)
    for row in rows:
        if "scaled_over_plain" in row:
            shown = marked(f"{row['scaled_over_plain']:.3f}", _is_scaled_well(row))
            beside = f"{_bytes_beside(row):.3f}" if row["has_scratch"] else "-"
            cells = f"{shown} | {row['bytes_over_plain']:.3f} | {beside} | {row['then_added_over_scaled']:.3f}"
            lines.append(f"| {row['name'].removeprefix('scaled-')} | {row['nnz']:,} | {cells} |")
        elif "products" in row:
            facts.append(
                f"- {row['products']:,} products of replayed graphs, same bits: {row['us_a_product']:.2f} us each"
            )
        elif "differences" in row:
            shown = ", ".join(f"{name} {difference:.1e}" for name, difference in row["differences"].items())
            facts.append(f"- difference from SciPy's own, relative: {shown}")
        elif "petsc" in row:
            ours, theirs = (row["us_an_iteration"][side] for side in ("operator", "petsc"))
            facts.append(
                f"- PETSc {row['petsc']}'s conjugate gradients, {row['nnz']:,} nonzeros, vectors on the {row['vectors']}: an iteration "
                f"{ours:.1f} us by the operator, {theirs:.1f} us by PETSc's own matrix there; solutions {row['apart']:.1e} apart"
            )
        else:
            for side, times in row["sides"].items():
                shown = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in times.items())
                facts.append(f"- jax {row['jax']} on {row['backend']}, {side}: {shown}")
    return [*lines, "", *_scaling_lines(rows), *facts, *failed]


def _is_scaled_well(row: Json) -> bool:
    """Within the aim where y is read anyway, else within the bytes that reading y adds."""
    return bool(row["scaled_over_plain"] <= max(MOST_SCALED_OVER_PLAIN, row["bytes_over_plain"]))


def _bytes_beside(row: Json) -> float:
    """A second kernel reads A x from a workspace, reads y and writes it: three vectors where scaling in place reads one."""
    return 1 + VECTORS_BESIDE * (float(row["bytes_over_plain"]) - 1)


def _scaling_lines(rows: Sequence[Json]) -> Iterator[str]:
    """How many rows keep the aim, and what the others have in common."""
    scaled = [row for row in rows if "scaled_over_plain" in row]
    if not scaled:
        return
    missed = [row for row in scaled if not _is_scaled_well(row)]
    yield (
        f"- alpha and beta within {MOST_SCALED_OVER_PLAIN:g}x, or within the bytes of reading y where they are more: "
        f"{len(scaled) - len(missed)} of {len(scaled)}"
    )
    if beside := [row for row in missed if row["has_scratch"]]:
        shown = ", ".join(
            f"{row['name'].removeprefix('scaled-')} {row['scaled_over_plain']:.3f} where its bytes are {_bytes_beside(row):.3f}"
            for row in beside
        )
        yield (
            "- of the others these have memory of their own (`has_scratch`), as an operator has whose kernel is not scaled where it stores: a "
            f"second kernel reads and writes three vectors more, and takes what y = A x and a kernel that adds take: {shown}"
        )
    if others := [row["name"].removeprefix("scaled-") for row in missed if not row["has_scratch"]]:
        yield f"- not explained by bytes: {', '.join(others)}"


def call_lines(result: Json) -> list[str]:
    """Host time of a call by each way, and what scaling and new values cost the GPU."""
    ways = {
        "driver_empty_launch": "the driver's launch of a kernel that does nothing",
        "c": "from C",
        "c_own_stream": "from C, on a stream of its own",
        "c_scaled": "from C, alpha and beta",
        "ctypes": "by ctypes, addresses given",
        "python_out": "`matvec(x, out=y)`",
        "torch_out": "`matvec(x, out=y)`, torch's tensors",
        "torch_op": "torch's operator `sparsesmith::product`, a new result each",
        "torch_op_traced": "the same, x requires a gradient",
        "cupy": "cupyx's `A @ x`",
    }
    lines = ["| call | host us | aim |", "|---|---|---|"]
    for name, us in (result["us_a_call"] | result["python_us_a_call"]).items():
        most = MOST_US_OF_A_CALL.get(name)
        cells = f"{us:.2f} | -" if most is None else f"{marked(f'{us:.2f}', us <= most)} | <= {most:g}"
        lines.append(f"| {ways[name]} | {cells} |")
    scaled = result["scaled_over_plain"]
    return [
        *lines,
        "",
        *_floor_lines(result["us_a_call"]),
        *_torch_lines(result["python_us_a_call"]),
        f"- alpha A x + beta y over A x, {result['large_nnz']:,} nonzeros: "
        f"{marked(f'{scaled:.3f}', scaled <= MOST_SCALED_OVER_PLAIN)} (aim: {MOST_SCALED_OVER_PLAIN:g} where y is read anyway), by the plain program, "
        "a warp a row, which ends with waiting for y; tuned kernels in the section on what an operator promises",
        *_update_lines(result),
    ]


def _floor_lines(us_a_call: Json) -> Iterator[str]:
    """How much of a call from C is the driver's launch: both on a stream of their own, where the file has that."""
    if "c_own_stream" not in us_a_call or "driver_empty_launch" not in us_a_call:
        return
    launch, own, default = (us_a_call[name] for name in ("driver_empty_launch", "c_own_stream", "c"))
    yield (
        f"- of a call from C on a stream of its own {launch:.2f} us are the driver's launch of a kernel that does nothing on the same host and "
        f"stream, {own - launch:.2f} us are this library's, the kernel's arguments among them; on the default stream, which the driver orders with "
        f"all streams that wait for it, the same call takes {abs(default - own):.2f} us {'more' if default >= own else 'less'}, and "
        "this library does the same there"
    )


def _torch_lines(us_a_call: Json) -> Iterator[str]:
    """What of torch's operator is not the product."""
    if not {"torch_out", "torch_op", "torch_op_traced"} <= us_a_call.keys():
        return
    given, made, traced = (us_a_call[name] for name in ("torch_out", "torch_op", "torch_op_traced"))
    yield (
        f"- of torch's operator {given:.2f} us are a product of its tensors with `out=`; {made - given:.2f} us are the result, which torch "
        f"allocates, and looking whether torch records; {traced - made:.2f} us more is a node of autograd's"
    )


def _update_lines(result: Json) -> Iterator[str]:
    """What new values of as many nonzeros take: copied where the format has them in CSR's order, else gathered."""
    copied, gathered = result.get("update_values_copied"), result.get("update_values_gathered")
    if copied and gathered:
        of_driver = gathered["gbs"] / copied["gbs"]
        share = None if "copy_gbs" not in result else gathered["gbs"] / result["copy_gbs"]
        of_device = (
            f"which was not measured in this run (aim: {LEAST_OF_A_COPY:.0%})"
            if share is None
            else f"{result['copy_gbs']:,.0f} GB/s: {marked(f'{share:.0%}', share >= LEAST_OF_A_COPY)} (aim: {LEAST_OF_A_COPY:.0%})"
        )
        yield (
            f"- `update_values` from the device, of as many: {copied['us']:.1f} us where the format has CSR's order (the driver's copy, "
            f"{copied['gbs']:,.0f} GB/s read and written); {gathered['us']:.1f} us into the order of `row_bins`, {gathered['gbs']:,.0f} GB/s "
            f"of places and values read and values written: {of_driver:.0%} of that copy's. The aim is of the device's copy bandwidth, {of_device}"
        )


def _measured_and_failed(result: Json) -> tuple[Sequence[Json], list[str]]:
    rows = [row for row in result["rows"] if "failed" not in row]
    return rows, [f"- {row['name']} failed: {row['failed']}" for row in result["rows"] if "failed" in row]


def _over(row: Json, clock: str, ours: str, theirs: str) -> str:
    """`-` where a side was not timed, or not cold."""
    sides = [row["times"].get(side, {}).get(clock) for side in (theirs, ours)]
    return "-" if None in sides else f"{sides[0] / sides[1]:.2f}x"
