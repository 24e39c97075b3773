"""The facts as the page lists them. `python -m tests.program.fact_page` writes docs/kernel-programs.md anew."""

from pathlib import Path

from sparsesmith.program.facts import FACTS, FORMULAS

PAGE = Path(__file__).parents[2] / "docs" / "kernel-programs.md"
BEGIN, END = "<!-- begin: facts -->\n", "<!-- end: facts -->\n"


def fact_table() -> str:
    """Markdown, between its marks."""
    facts = [(name, fact.meaning, fact.unit, fact.of) for name, fact in FACTS.items()]
    facts += [
        (f"{name}({', '.join(formula.arguments)})", f"table: {formula.meaning}", formula.unit, formula.of)
        for name, formula in FORMULAS.items()
    ]
    lines = [f"| `{name}` | {meaning} | {unit} | {of} |" for name, meaning, unit, of in facts]
    return "\n".join([BEGIN + "| fact | meaning | unit | of |", "|---|---|---|---|", *lines, END])


def written_anew(page: str) -> str:
    """The page with the table of today. Raises ValueError for one without its marks."""
    start, end = page.index(BEGIN), page.index(END) + len(END)
    return page[:start] + fact_table() + page[end:]


def main() -> None:
    PAGE.write_text(written_anew(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
