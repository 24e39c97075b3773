"""A gradient in JAX: python jax_gradient.py A.operator, an operator of float64."""

import sys

import jax
import jax.numpy as jnp

import sparsesmith
from sparsesmith.jax import product

jax.config.update("jax_enable_x64", True)
A = sparsesmith.load(sys.argv[1])
loss = jax.jit(jax.value_and_grad(lambda x: jnp.sum((product(A, x) - 1) ** 2)))
x = jnp.zeros(A.shape[1])
for _ in range(20):
    error, gradient = loss(x)
    x -= 0.01 * gradient
print(f"loss {error:.3g}")
