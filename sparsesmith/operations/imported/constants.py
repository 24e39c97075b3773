"""Whole numbers that a KernelBench module assigns, set anew."""

import ast
from collections.abc import Mapping

from sparsesmith.errors import InvalidInput


def with_constants(text: str, constants: Mapping[str, int]) -> ast.Module:
    """The module with other whole numbers in the place of what it assigns to these names; of a tuple in the place of
    each of its entries. Raises InvalidInput for a name that it does not assign."""
    tree = ast.parse(text)
    assigned = {name: node for node in tree.body if isinstance(node, ast.Assign) and (name := _name_of(node))}
    for name, number in constants.items():
        if name not in assigned:
            raise InvalidInput(f"set {name}: the module assigns {', '.join(assigned) or 'nothing'}", field="set")
        node, constant = assigned[name], ast.Constant(number)
        chosen = (
            ast.Tuple([constant] * len(node.value.elts), ast.Load()) if isinstance(node.value, ast.Tuple) else constant
        )
        node.value = ast.copy_location(chosen, node.value)
    return ast.fix_missing_locations(tree)


def text_with_constants(text: str, constants: Mapping[str, int]) -> str:
    """As it came where there are none, else without its comments. Raises InvalidInput."""
    return ast.unparse(with_constants(text, constants)) if constants else text


def _name_of(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""
