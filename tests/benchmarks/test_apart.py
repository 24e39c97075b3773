"""Items of a benchmark in processes of their own: rows of those that end well and in time."""

import time
from pathlib import Path

import pytest

from benchmarks.judging.apart import rows_apart

PROGRAM = """
import json, pathlib, sys, time
item, folder = sys.argv[1:]
if item == "slow":
    time.sleep(60)
if item == "broken":
    raise SystemExit(3)
below = pathlib.Path(folder, "h200")
below.mkdir()
(below / "found.json").write_text(json.dumps({"rows": [{"item": item}]}))
"""


def test_rows_of_items_that_fail_or_take_too_long_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one_item.py").write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def command(item: str, folder: Path) -> list[str]:
        return ["one_item", item, str(folder)]

    found = list(rows_apart(["a", "slow", "broken", "b"], command, 4, time.monotonic() + 5))
    assert sorted(row["item"] for rows in found for row in rows) == ["a", "b"]
    said = capfd.readouterr().out
    assert "slow: not done in time" in said
    assert "broken: exit status 3" in said
    assert list(rows_apart(["a"], command, 4, time.monotonic() - 1)) == [[]]
