"""`sparsesmith` run in this process."""

import sys
from dataclasses import dataclass

import pytest

from sparsesmith.cli import main

FAST = ("--candidates", "4", "--seconds", "20")


@dataclass(frozen=True)
class Ended:
    """A command that ended."""

    code: int
    out: str
    err: str


class Shell:
    """Runs `sparsesmith` in this process."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch = patch
        self._capture = capture

    def __call__(self, *arguments: object) -> Ended:
        self._patch.setattr(sys, "argv", ["sparsesmith", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        captured = self._capture.readouterr()
        return Ended(int(caught.value.code or 0), captured.out, captured.err)


def assert_one_line(ended: Ended, *parts: str) -> None:
    """A user's mistake: exit code 2, and after the progress one line of it, naming the parts."""
    assert (ended.code, ended.out) == (2, "")
    (line,) = [line for line in ended.err.splitlines() if not is_progress(line)]
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


def is_progress(line: str) -> bool:
    return line.startswith("[")
