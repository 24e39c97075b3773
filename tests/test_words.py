"""What people are told: nothing that measurements took back, where licence and reports are, no link into the void."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TAKEN_BACK = {
    "thousands of times": "640,000 products and more were measured before a search was repaid",
    "proved correct": "programs are checked, on five inputs",
    "proven correct": "as above",
    "nothing but the address of redis": "an evaluator needs its password, and a device",
}
FOR_PEOPLE = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "models").rglob("*.md"),
    *(ROOT / "examples").glob("*.md"),
    *(ROOT / "services" / "generator" / "http").rglob("*.html"),
    *(ROOT / "services" / "generator" / "http").rglob("*.py"),
    *(ROOT / "services" / "generator" / "http" / "static").glob("*.js"),
    *(ROOT / "sparsesmith" / "cli").rglob("*.py"),
    ROOT / "pyproject.toml",
]


@pytest.mark.parametrize("path", FOR_PEOPLE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_claim_is_made_that_measurements_took_back(path: Path) -> None:
    text = " ".join(path.read_text(encoding="utf-8").lower().split())
    assert {claim: why for claim, why in TAKEN_BACK.items() if claim in text} == {}


def test_the_licence_and_how_to_report_a_vulnerability_are_found_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {"LICENSE", "SECURITY.md"} <= set(re.findall(r"\]\(([^)#]+)\)", readme))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")[:200]
    assert "report" in (ROOT / "SECURITY.md").read_text(encoding="utf-8").lower()


WRITTEN = [path for path in FOR_PEOPLE if path.suffix == ".md"] + [ROOT / "benchmarks" / "REPORT.md"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.*)$", re.MULTILINE)


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(path: Path) -> None:
    inner = [link for link in LINK.findall(path.read_text(encoding="utf-8")) if not re.match(r"[a-z]+:", link)]
    for link in inner:
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), link
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), link


@cache
def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them: small letters, digits, underscores, and a hyphen for each space."""
    headings = HEADING.findall(page.read_text(encoding="utf-8"))
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", each.strip().lower()).replace(" ", "-") for each in words}
