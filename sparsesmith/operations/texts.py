"""Programs of an operation's folder."""

import re
from importlib.resources import files

from sparsesmith.elements import c_type
from sparsesmith_proto.message import ElementType


def program_texts(package: str, *names: str) -> dict[str, str]:
    """The texts of `programs/<name>.cu.in` beside a module of `package`, in the order given."""
    folder = files(package) / "programs"
    return {name: (folder / f"{name}.cu.in").read_text(encoding="utf-8") for name in names}


def with_element_type(text: str, element_type: ElementType) -> str:
    """`T` filled in."""
    return re.sub(r"\bT\b", c_type(element_type), text)
