"""The command line. `commands` declares it and imports nothing heavy; each command loads what it needs when it runs."""

from sparsesmith.cli.commands import main

__all__ = ["main"]
