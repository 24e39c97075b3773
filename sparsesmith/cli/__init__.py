"""The command line: `sparsesmith tune`, `grade`, `up`, `demo`, `train`."""

from sparsesmith.cli.commands import main

__all__ = ["main"]
