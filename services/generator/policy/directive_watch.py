"""Reads a program while it is written: once its directives stand there, is it still worth going on?

What is refused here the evaluator would refuse, too, before or while it builds the format; so nothing is lost but the
tokens. Looked at once, at the first text behind the first lines: a program whose format or launches stand further down
is not judged, and one that binds a number further down that its first lines need is taken for illegal.
"""

import logging
from functools import lru_cache

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.known_sizes import known_sizes
from sparsesmith.operations import Problem, operation_named
from sparsesmith.program.directives import (
    PREFIX,
    WAIT_INSTRUCTION,
    check_directives,
    is_directive,
    parse_directives,
)
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from sparsesmith.program.program import check_sizes

log = logging.getLogger(__name__)

MOST_NNZ_BUILT = 1_000_000
"""Up to here the format itself is built to see whether it holds the matrix; beyond, only what is known without."""


class Forms:
    """What the programs of one problem may say in their directives; what a format answered is remembered."""

    def __init__(self, problem: Problem, num_sms: int) -> None:
        self._problem = problem
        self._num_sms = num_sms
        self.refusal = lru_cache(maxsize=256)(self._refusal)
        """What is said against a program of these directives; None where it may be right. Blocking."""

    def _refusal(self, block: str) -> str | None:
        workload, matrix = self._problem.workload, self._problem.matrix
        circumstances = Circumstances(matrix, workload.num_dense_cols, self._num_sms, workload.axes)
        try:
            text = bind_numbers(block, {}, circumstances, workload.operation, workload.element_type).text
            directives = parse_directives(text)
            check_directives(directives, WAIT_INSTRUCTION, operation_named(workload.operation))
            if matrix is None:
                return None
            check_sizes(directives, {**self._problem.sizes, **known_sizes(directives.format, matrix)})
            if matrix.nnz <= MOST_NNZ_BUILT:
                directives.format.build(matrix, directives.parameters)
        except InvalidProgram as error:
            return error.message
        return None


class DirectiveWatch:
    """Over one sample."""

    def __init__(self, forms: Forms) -> None:
        self._forms = forms
        self._block: str | None = None

    def is_due(self, text: str) -> bool:
        """Whether the directives have just ended: once a sample. Cheap."""
        if self._block is None and (block := directive_block(text)) is not None:
            self._block = block
            return all(f"{PREFIX} {needed}" in block for needed in ("format", "launch"))
        return False

    def refuses(self) -> bool:
        """Blocking; after `is_due`."""
        refusal = self._forms.refusal(self._block or "")
        if refusal is not None:
            log.debug("a sample is stopped: %s", refusal)
        return refusal is not None


def directive_block(text: str) -> str | None:
    """The directive lines that a text begins with; None while they may go on."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        begun = line.lstrip(" \t")
        if begun and not is_directive(line) and not (number == len(lines) - 1 and PREFIX.startswith(begun)):
            return "".join(f"{each}\n" for each in lines[:number])
    return None
