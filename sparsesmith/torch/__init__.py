"""The operator in torch: gradients by x and by the values, in compiled graphs. Needs `pip install sparsesmith[torch]`.

from sparsesmith.torch import SparseLayer, product
y = product(A, x)             # gradient by x: A^T
layer = SparseLayer(A)        # its values are a parameter
"""

from sparsesmith.operator.tensors import product
from sparsesmith.torch.layer import SparseLayer

__all__ = ["SparseLayer", "product"]
