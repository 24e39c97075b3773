"""PyG with a saved operator: python pyg_convolution.py A.operator, an adjacency matrix of float32, targets as rows."""

import sys

import torch
from torch_geometric.nn import GCNConv

import sparsesmith
from sparsesmith.torch import product


class Convolution(GCNConv):
    """PyG's own layer, whose sparse product is the operator's: no message is stored."""

    def __init__(self, adjacency, inputs, outputs):
        super().__init__(inputs, outputs, normalize=False)
        self.adjacency = adjacency

    def message_and_aggregate(self, adj_t, x):
        return product(self.adjacency, x)


A = sparsesmith.load(sys.argv[1])
csr = A.to_scipy()
adj_t = torch.sparse_csr_tensor(csr.indptr, csr.indices, csr.data, csr.shape)  # tells PyG that it is sparse
x = torch.randn(A.shape[1], 16)
ours, theirs = Convolution(A, 16, 4), GCNConv(16, 4, normalize=False)
theirs.load_state_dict(ours.state_dict())
for layer in (ours, theirs):
    layer(x, adj_t).square().sum().backward()
error = (ours.lin.weight.grad - theirs.lin.weight.grad).norm() / theirs.lin.weight.grad.norm()
print(f"gradient as PyG's own to {error:.0e}")
