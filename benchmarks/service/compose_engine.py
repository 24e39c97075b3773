"""Docker or Podman with their Compose: what builds our images and runs the composed stack.

Not protected against: a machine whose Podman has no systemd runs no health checks by itself; here they are run by hand.
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND_LIMIT_S = 3600


class EngineFailed(Exception):
    """A command of the engine that ended with an error; the message has the end of what it said."""


@dataclass(frozen=True)
class Engine:
    """One of the two."""

    container: str
    """`docker` or `podman`."""
    compose: tuple[str, ...]

    def versions(self) -> dict[str, str]:
        own = self.run([self.container, "--version"])
        return {self.container: own.strip(), "compose": self.run([*self.compose, "version"]).strip().splitlines()[0]}

    def run(self, command: Sequence[str], folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
        """Standard output. Raises EngineFailed."""
        ended = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMMAND_LIMIT_S,
        )
        if ended.returncode != 0:
            said = "\n".join((ended.stdout + ended.stderr).splitlines()[-25:])
            raise EngineFailed(f"{shlex.join(command)} ended with {ended.returncode}:\n{said}")
        return ended.stdout

    def inspect(self, name: str) -> dict[str, Any]:
        """A container or an image."""
        (found,) = json.loads(self.run([self.container, "inspect", name]))
        return dict(found)

    def names(self, project: str, service: str, *, stopped: bool = False) -> list[str]:
        """Containers of a service of a project."""
        command = [self.container, "ps", *(["--all"] if stopped else []), "--format", "{{.Names}}"]
        labels = (f"com.docker.compose.project={project}", f"com.docker.compose.service={service}")
        filters = [word for label in labels for word in ("--filter", f"label={label}")]
        return sorted(self.run([*command, *filters]).split())

    def is_healthy(self, name: str, check: Sequence[str]) -> bool:
        """Whether a container's check, in the words of its compose file, succeeds now."""
        words = [word.replace("$$", "$") for word in check[1:]]
        try:
            self.run([self.container, "exec", name, *words])
        except EngineFailed:
            return False
        return True


def find_engine() -> Engine | str:
    """What works here, or why nothing does."""
    missing = []
    for container, compose in (("docker", ("docker", "compose")), ("podman", ("podman-compose",))):
        if shutil.which(container) is None or shutil.which(compose[0]) is None:
            missing.append(f"{' '.join({container, compose[0]})} not installed")
            continue
        engine = Engine(container, compose)
        try:
            engine.run([container, "info"])
            engine.run([*compose, "version"])
        except EngineFailed as error:
            missing.append(f"{container} does not work ({str(error).splitlines()[-1][:120]})")
            continue
        return engine
    return "; ".join(missing)
