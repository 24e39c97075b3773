"""A training run whose process dies at a chosen step."""

from pathlib import Path
from typing import Any

from services.trainer.offline.saved_run import SavedRun, State


class Killed(Exception):
    """The run was."""


class KilledAt(SavedRun):
    """Keeps every state; its process dies once that of `step`, as the state counts it, is on disk."""

    def __init__(self, path: Path, step: int, *, counter: str = "step", **identity: Any) -> None:
        super().__init__(path, identity, every_s=0.0)
        self._step = step
        self._counter = counter

    def keep(self, state: State) -> None:
        super().keep(state)
        if state[self._counter] == self._step:
            raise Killed
