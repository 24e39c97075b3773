"""The operator in JAX: jit, gradients by x and by the values. Needs `pip install sparsesmith[jax]` and a C compiler.

from sparsesmith.jax import product
y = jax.jit(lambda x: product(A, x))(x)
"""

from sparsesmith.jax.products import product, sampled

__all__ = ["product", "sampled"]
