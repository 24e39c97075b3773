"""Training with a saved operator: python layer.py A.operator. Its values are learned; works in torch.compile."""

import sys

import torch

import sparsesmith
from sparsesmith.torch import SparseLayer

A = SparseLayer(sparsesmith.load(sys.argv[1]))
model = torch.compile(A, backend="aot_eager", fullgraph=True)
x = torch.ones(A.operator.shape[1], dtype=torch.float64)
optimizer = torch.optim.SGD(A.parameters(), lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    loss = (model(x) - 1).square().mean()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.3g}")
