"""Settings dataclasses as command-line options."""

import argparse
from typing import TypeVar

Settings = TypeVar("Settings")


def add_fields(parser: argparse.ArgumentParser, defaults: object) -> None:
    """An option for each field of a settings dataclass: `--batch-sequences 128`; a flag for a boolean."""
    for name, default in vars(defaults).items():
        option = "--" + name.replace("_", "-")
        if isinstance(default, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction, default=default)
        else:
            parser.add_argument(option, type=type(default), default=default, help=f"default {default}")


def fields_from(kind: type[Settings], options: argparse.Namespace) -> Settings:
    """The settings dataclass with the options' values."""
    return kind(**{name: getattr(options, name) for name in kind.__dataclass_fields__})  # type: ignore[attr-defined]
