"""PTX as one reader sees it: read once, judged, printed anew; what was read is what is assembled and what is run.

`read_module` takes a text apart, `print_module` writes it again without comments, strings or anything that the reader
did not understand; `is_read_alike` says of a text that no reader could take it for anything else. Every check on
machine code and the interpreter work on the parsed form.
"""

from services.evaluator.ptx.alike import is_read_alike
from services.evaluator.ptx.lexer import MalformedPtx
from services.evaluator.ptx.module import Function, Instruction, Module, Statement, Variable
from services.evaluator.ptx.printing import print_module
from services.evaluator.ptx.reading import read_module

__all__ = [
    "Function",
    "Instruction",
    "MalformedPtx",
    "Module",
    "Statement",
    "Variable",
    "is_read_alike",
    "print_module",
    "read_module",
]
