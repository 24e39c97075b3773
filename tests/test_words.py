"""What people are told: nothing that measurements took back, and where licence and reports are."""

import re
import tomllib
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
