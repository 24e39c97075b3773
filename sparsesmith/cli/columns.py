"""Tables as plain lines, as wide as they are: nothing is cut or wrapped, and `grep`, `awk` and `cut` can read them."""

from collections.abc import Sequence

from sparsesmith.cli.visible import visible


def columns(title: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> str:
    """The lines of a table; columns named in `right` stand flush right. Control characters are replaced."""
    lines = [title, *([" ".join(visible(cell).split()) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(title))]
    turned = [name in right for name in title]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(line, widths, turned, strict=True)
        ).rstrip()
        for line in lines
    )
