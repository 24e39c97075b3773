"""Autotuning over the kernel families: a cost model proposes, measurements of the matrix correct it."""
