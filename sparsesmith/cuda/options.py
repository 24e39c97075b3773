"""Compiler options that change a program's code: the same wherever one is compiled."""

CODE_OPTIONS = ("-std=c++17",)
"""The evaluator's, the Python loader's (to all that CuPy compiles it adds `-ftz=true`), the C++ header's."""
