"""docs/cli.md tells of every command, and of nothing that is not there."""

import re
from pathlib import Path

import pytest
import typer

from sparsesmith.cli.commands import app

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = typer.main.get_command(app)
COMMANDS = getattr(PROGRAM, "commands")  # noqa: B009
COMMAND = re.compile(r"sparsesmith (?!is\b)([a-z][a-z-]*)")


def options_of(command: object) -> set[str]:
    """Every spelling of a command's options."""
    return {spelling for option in getattr(command, "params") for spelling in option.opts}  # noqa: B009


def test_the_page_has_a_row_for_every_command() -> None:
    rows = re.findall(r"^\| `sparsesmith ([a-z][a-z-]*)", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(COMMANDS)


@pytest.mark.parametrize("text", [PAGE, README], ids=["docs/cli.md", "README.md"])
def test_every_command_that_is_shown_exists(text: str) -> None:
    shown = [name for code in re.findall(r"`([^`\n]+)`|^([^`\n]*\bsparsesmith [^`\n]*)$", text, re.MULTILINE)
             for name in COMMAND.findall("".join(code))]  # fmt: skip
    assert shown
    assert set(shown) <= set(COMMANDS)


def test_every_option_that_is_shown_exists() -> None:
    known = {"--help"}.union(*(options_of(command) for command in [PROGRAM, *COMMANDS.values()]))
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE + README)) - {"--build", "--user"}
    assert shown <= known, sorted(shown - known)


def test_commands_that_talk_to_a_server_take_the_same_options_for_it() -> None:
    local = {"backup", "calibrate", "check", "demo", "gpus", "keys", "new-kernel", "restore", "train", "up"}
    for name, command in COMMANDS.items():
        for each in getattr(command, "commands", {}).values() or [command]:
            assert name in local or {"--url", "--header", "--json"} <= options_of(each), name
