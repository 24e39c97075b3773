"""A training run that a kill does not end: its state on disk every so often, and where it went on from.

Every step is a function of the run's settings and its number, so a run that goes on takes the steps that it would have
taken. Not protected against: the loss of the disk, and two runs on one file.
"""

import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from services.trainer.durable import write_durably

State = dict[str, Any]
"""Tensors, numbers, strings, lists and dicts of these."""


class SavedRun:
    """One file, gone once the run has ended."""

    def __init__(self, path: Path | None, identity: Mapping[str, Any], every_s: float = 60.0) -> None:
        """`identity`: settings and data; what another run left is passed over. Without a path nothing is kept."""
        self._path = path
        self._identity = repr(sorted(identity.items()))
        self._every_s = every_s
        self._last = time.monotonic()

    def state(self) -> State | None:
        """What the run left when it was stopped; None for a fresh start."""
        if self._path is None or not self._path.is_file():
            return None
        kept = torch.load(io.BytesIO(self._path.read_bytes()), map_location="cpu", weights_only=True)
        return dict(kept["state"]) if kept["identity"] == self._identity else None

    def offer(self, state: Callable[[], State]) -> None:
        """Keeps the state where it is time."""
        if self._path is not None and time.monotonic() - self._last >= self._every_s:
            self.keep(state())

    def keep(self, state: State) -> None:
        """On disk when this returns."""
        if self._path is not None:
            buffer = io.BytesIO()
            torch.save({"identity": self._identity, "state": state}, buffer)
            write_durably(self._path, buffer.getbuffer())
            self._last = time.monotonic()

    def end(self) -> None:
        """The run's results are kept elsewhere."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


NO_SAVED_RUN = SavedRun(None, {})
