"""What docs/security.md says is covered is covered: the tests and programs it names are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_test_that_the_page_names_exists() -> None:
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert named
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_every_program_that_the_page_names_exists() -> None:
    table = PAGE.partition("## Cheats covered")[2]
    named = {name for group in re.findall(r"\((`[^)]*`)\)", table) for name in re.findall(r"`([\w*]+)`", group)}
    assert named
    assert {name for name in named if not list((ROOT / "tests" / "kernels").glob(f"*/{name}.cu"))} == set()
