"""Dockerfiles, replayed instruction by instruction in a folder that holds no more than what was copied so far."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.compose.compose_files import ROOT

REPLAYED_PIP = Path(__file__).with_name("replayed_pip.py")
OF_THE_SYSTEM = ("apt-get", "useradd", "install", "rm", "openssl")
"""Commands of RUN that change nothing in the working folder."""


@dataclass(frozen=True)
class Instruction:
    """A line of a Dockerfile with those that continue it, without its options."""

    word: str
    text: str

    def copies(self) -> list[tuple[str, str]]:
        """(source, target), relative to the build's context and to the image's working folder."""
        if self.word != "COPY":
            return []
        *sources, target = self.text.split()
        return [(source, target) for source in sources]


class ReplayFailed(Exception):
    """An instruction that would end the build."""


@dataclass
class Replay:
    """An image's working folder after each instruction. RUN goes through a shell that finds Python, the pip of
    `replayed_pip` and nothing else that does anything; models/ is left out."""

    folder: Path
    tools: Path
    variables: dict[str, str] = field(default_factory=dict)
    ran: list[Instruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.tools.mkdir()
        self._tool("python", f'exec {sys.executable} "$@"')
        self._tool("pip", f'exec {sys.executable} {REPLAYED_PIP} "$@"')
        for name in OF_THE_SYSTEM:
            self._tool(name, "exit 0")

    def play(self, found: list[Instruction]) -> None:
        """Raises ReplayFailed."""
        for instruction in found:
            match instruction.word:
                case "ARG":
                    name, _, default = instruction.text.partition("=")
                    self.variables.setdefault(name, default.strip('"'))
                case "COPY":
                    self._copy(instruction)
                case "RUN":
                    self._run(instruction)
            self.ran.append(instruction)

    def installed(self) -> list[str]:
        """Packages that pip was asked for, in their order."""
        log = self.tools / "pip.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [requirement for line in lines for requirement in json.loads(line)]

    def _copy(self, instruction: Instruction) -> None:
        for source, target in instruction.copies():
            path, place = ROOT / source, self.folder / target
            if source == "models/":
                continue
            if path.is_dir():
                shutil.copytree(path, place, ignore=_ignored, dirs_exist_ok=True)
            elif target.endswith("/"):
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, place)
            else:
                raise ReplayFailed(f"COPY {instruction.text}: the target of a file is a folder and ends in /")

    def _run(self, instruction: Instruction) -> None:
        environment = {"PATH": str(self.tools), "REPLAY_LOG": str(self.tools / "pip.jsonl"), **self.variables}
        command = ["/bin/sh", "-e", "-c", instruction.text]
        ended = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        if ended.returncode != 0:
            raise ReplayFailed(f"RUN {instruction.text}: {ended.stderr}")

    def _tool(self, name: str, line: str) -> None:
        path = self.tools / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)


def dockerfile(service: str) -> Path:
    return ROOT / "services" / service / "Dockerfile"


def instructions(text: str) -> list[Instruction]:
    """All of a Dockerfile, `FROM` included."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    lines = [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]
    return [Instruction(word, re.sub(r"^(--\S+\s+)+", "", rest)) for word, rest in lines]


def replay(text: str, folder: Path, arguments: Mapping[str, str]) -> Replay:
    """A whole Dockerfile in a new folder, with build arguments. Raises ReplayFailed."""
    folder.mkdir(parents=True, exist_ok=True)
    replayed = Replay(folder / "app", folder / "tools", dict(arguments))
    replayed.play(instructions(text))
    return replayed


def copies(service: str) -> list[tuple[str, str]]:
    """(source, target) of every COPY, relative to the repository and to the image's working folder."""
    found = instructions(dockerfile(service).read_text())
    return [copied for instruction in found for copied in instruction.copies()]


def _ignored(folder: str, names: list[str]) -> Iterator[str]:
    """As .dockerignore says."""
    return (name for name in names if name in ("__pycache__", "Dockerfile") or Path(name).suffix == ".pyc")
