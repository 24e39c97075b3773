"""A module written anew: one statement a line, no comments, no strings but two that are fixed."""

from collections.abc import Iterator

from services.evaluator.ptx.module import Function, Module

_SOURCE_FILE = '.file 1 "kernel.cu"'


def print_module(module: Module) -> str:
    """PTX that `read_module` reads as this very module; `.loc` names lines of the program."""
    return "\n".join([*module.heads, _SOURCE_FILE, *_declarations(module), *_definitions(module), ""])


def _declarations(module: Module) -> Iterator[str]:
    yield from (f"{variable.text};" for variable in module.variables)
    for function in module.functions.values():
        if not function.is_entry:
            yield f"{_head(function)};"


def _definitions(module: Module) -> Iterator[str]:
    for function in module.functions.values():
        if function.body is not None:
            yield _head(function)
            yield from _body(function)


def _head(function: Function) -> str:
    results = f" ({', '.join(function.results)})" if function.results else ""
    kind = "entry" if function.is_entry else "func"
    pieces = [function.linkage, f".{kind}{results} {function.name}({', '.join(function.parameters)})"]
    return " ".join(filter(None, [*pieces, *function.directives]))


def _body(function: Function) -> Iterator[str]:
    line = 0
    for statement in function.body or ():
        if statement.line != line:
            line = statement.line
            yield f".loc 1 {line} 0"
        match statement.kind:
            case "open" | "close":
                yield statement.text
            case "label":
                yield f"{statement.text}:"
            case _:
                yield f"{statement.text};"
