"""Help, version and completion answer before anything heavy is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparsesmith.cli.commands import app

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"numpy", "scipy", "pydantic", "httpx", "rich", "asyncio", "services"}
OF_OURS = {"sparsesmith.client", "sparsesmith.runtime", "sparsesmith_proto.message"}
NAMED = [(command.name, command.callback) for command in app.registered_commands]
COMMANDS = sorted(str(name or getattr(callback, "__name__", "")) for name, callback in NAMED)
GROUPS = sorted(str(group.name) for group in app.registered_groups)

LOADED = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules, file=sys.stderr))
sys.argv[0] = "sparsesmith"
from sparsesmith.cli import main
main()
"""


def run(*arguments: str, **environment: str) -> "tuple[str, set[str]]":
    """What the command prints, and the modules that it has loaded at its end."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto")])
    started = subprocess.run(
        [sys.executable, "-c", LOADED, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )
    assert started.returncode == 0, started.stderr
    said, _, loaded = started.stderr.rpartition("loaded: ")
    assert said == ""
    return started.stdout, set(loaded.split())


def assert_light(loaded: set[str]) -> None:
    assert "sparsesmith.cli.commands" in loaded
    assert {module.partition(".")[0] for module in loaded} & HEAVY == set()
    assert loaded & OF_OURS == set()


def test_the_version_is_told_before_anything_heavy_is_imported() -> None:
    printed, loaded = run("--version")
    assert printed.startswith("sparsesmith ")
    assert_light(loaded)


@pytest.mark.parametrize("arguments", [(), *((name,) for name in [*COMMANDS, *GROUPS])], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: tuple[str, ...]) -> None:
    printed, loaded = run(*arguments, "--help")
    assert printed.startswith(" ".join(("Usage: sparsesmith", *arguments)))
    assert_light(loaded)


def test_a_shell_completes_commands_without_importing_anything_heavy() -> None:
    found, loaded = run(_SPARSESMITH_COMPLETE="complete_bash", COMP_WORDS="sparsesmith ", COMP_CWORD="1")
    assert set(found.split()) == {*COMMANDS, *GROUPS}
    assert_light(loaded)
