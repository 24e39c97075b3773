"""What kernels that are wanted at once are compiled from most often, compiled before anybody asks."""

from services.evaluator.compiling.compiler import Compiler
from sparsesmith.families.stand_ins import common_texts
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import Architecture


def compile_common(compiler: Compiler, architecture: Architecture) -> None:
    """Hands them to the compilers and returns at once; jobs of the first seconds queue behind them."""
    for text, element_type in common_texts():
        compiler.submit(parse_program(text, "spmv", element_type).source, architecture)
