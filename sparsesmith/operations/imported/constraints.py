"""What a suite says must hold of axes: comparisons of names and whole numbers, read without running them."""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping

from sparsesmith.operations.operand import Sizes

_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def is_about(text: str, names: Iterable[str]) -> bool:
    """Whether it compares sizes of these names, and nothing else."""
    try:
        parsed = ast.parse(text, mode="eval").body
        return isinstance(parsed, ast.Compare) and _is_true(parsed, dict.fromkeys(names, 1)) is not None
    except (SyntaxError, ValueError, KeyError):
        return False
    except ZeroDivisionError:
        return True


def holds(text: str, fixed: Sizes, axes: Sizes) -> bool:
    """Of a text that `is_about` sizes. A division by zero does not."""
    parsed = ast.parse(text, mode="eval").body
    assert isinstance(parsed, ast.Compare)
    try:
        return _is_true(parsed, {**fixed, **axes})
    except ZeroDivisionError:
        return False


def _is_true(compared: ast.Compare, sizes: Sizes) -> bool:
    values = [_value(each, sizes) for each in (compared.left, *compared.comparators)]
    return all(
        _COMPARISONS[type(sign)](left, right)
        for sign, left, right in zip(compared.ops, values, values[1:], strict=False)
    )


def _value(node: ast.expr, sizes: Sizes) -> int:
    """Raises KeyError for another name or sign, ValueError for anything else."""
    match node:
        case ast.Name(id=name):
            return sizes[name]
        case ast.Constant(value=int(value)):
            return value
        case ast.BinOp(left=left, op=sign, right=right):
            return _ARITHMETIC[type(sign)](_value(left, sizes), _value(right, sizes))
        case _:
            raise ValueError(ast.unparse(node))
