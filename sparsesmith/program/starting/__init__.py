"""Programs to start from: plain, legal and right, one for each format where one thread or warp a row says enough."""

from importlib.resources import files

from sparsesmith.errors import InvalidOption
from sparsesmith.formats import format_named
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith_proto.message import ElementType, Operation

_FOLDER = files(__name__)
_SUFFIX = ".cu.in"


def starting_formats(operation: Operation) -> tuple[str, ...]:
    """Formats that have a starting program for an operation, by name."""
    folder = _FOLDER / operation
    if not folder.is_dir():
        return ()
    return tuple(sorted(path.name.removesuffix(_SUFFIX) for path in folder.iterdir() if path.name.endswith(_SUFFIX)))


def starting_program(format_name: str, operation: Operation, element_type: ElementType) -> str:
    """Raises InvalidProgram for an unknown format, InvalidOption for an unknown operation or one without a program for
    the format."""
    format_named(format_name)
    operation_named(operation)
    known = starting_formats(operation)
    if format_name not in known:
        listed = ", ".join(known) or "none"
        raise InvalidOption(
            f"there is no starting program of format {format_name} for {operation} (there are: {listed}); "
            "docs/kernel-programs.md tells the format's arguments",
            field="format",
            value=format_name,
            limit=listed,
        )
    text = (_FOLDER / operation / f"{format_name}{_SUFFIX}").read_text(encoding="utf-8")
    return with_element_type(text, element_type)
