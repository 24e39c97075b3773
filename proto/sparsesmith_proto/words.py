"""The words that a user chooses among. No import of pydantic: the command line offers them before it loads anything."""

from typing import Literal

ElementType = Literal["float32", "float64", "float16", "bfloat16"]
"""Type of the values, of x and of y. Products of 16-bit numbers are summed in float32."""

SearchStrategy = Literal["auto", "families", "sample", "refine", "instant"]
"""`instant`: a kernel that was checked once before any was measured, and `auto` behind it."""

ReorderOption = Literal["keep", "allowed"]
"""Whether a program may multiply with rows and columns in another order, copies of x and y counted in its time."""

TransposedOption = Literal["no", "yes", "both"]
"""Which of A and A^T a kernel is tuned for."""

TransposedStorage = Literal["copy", "shared"]
"""What A^T is multiplied from: `copy`: from a matrix of its own. `shared`: from A as it is stored."""

ValuesOption = Literal["any", "fixed"]
"""`any`: the kernel computes for any values in the pattern. `fixed`: for the matrix's own, which it may exploit."""
