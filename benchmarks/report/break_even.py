"""Break-even as a curve: after how many products an answer has repaid itself, given at once, after a while, or searched for.

From `benchmarks.measure.instant --search N`, which keeps what the search had found after each of these times; answers that no
matrix of a file has are left out.
"""

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.report.results import Json, median

PRODUCTS = (1e3, 1e4, 1e5, 1e6, 1e7)
ANSWERS = ("instant", "0.1 s", "0.5 s", "full")
AGAINST: Mapping[str, str] = {"best": "best routine", "default": "default"}
STOOD_IN = "Where kernels of `row_bins_any` or `ell_any` stood in at once: families that are gone since."


def break_even_section(results: Iterable[Json]) -> list[str]:
    """Of every file of times measured on a GPU; empty without any."""
    lines: list[str] = []
    for result in results:
        if result.get("kind") == "instant" and result["device"]["kind"] == "cuda":
            table = _table(result["rows"])
            if table:
                origin = f"{result['date']}, {result['device']['name']}; `{result['command']}`."
                lines += [origin + (f" {STOOD_IN}" if result.get("stands_in") else ""), "", *table, ""]
    if not lines:
        return []
    intro = (
        "Share of the matrices on which an answer has repaid itself after so many products: everything from the parsed "
        "pattern on is counted, conversion included, less what the routine takes to prepare. An answer is the kernel at "
        "once, or the best that the search had after that time."
    )
    return ["## Break-even", "", intro, "", *lines]


def _table(rows: Sequence[Json]) -> list[str]:
    lines = [
        f"| answer | against | matrices | products, median | {' | '.join(f'{count:.0e}' for count in PRODUCTS)} |",
        f"|---|---|---|---|{'---|' * len(PRODUCTS)}",
    ]
    kept = [row["worth"]["repaid"] for row in rows if "repaid" in row.get("worth", {})]
    for answer in ANSWERS:
        of_answer = [repaid[answer] for repaid in kept if answer in repaid]
        if of_answer:
            lines += [_line(answer, name, [repaid[key] for repaid in of_answer]) for key, name in AGAINST.items()]
    return lines if len(lines) > 2 else []


def _line(answer: str, against: str, counts: Sequence[int | None]) -> str:
    """None: never."""
    numbers = [float("inf") if count is None else count for count in counts]
    middle = median(numbers)
    typical = "never" if middle == float("inf") else f"{middle:,.0f}"
    shares = [f"{sum(number <= products for number in numbers) / len(numbers):.0%}" for products in PRODUCTS]
    return f"| {answer} | {against} | {len(numbers)} | {typical} | {' | '.join(shares)} |"
