"""Problems of other suites, of our own writing, in their formats."""

import json
from pathlib import Path
from typing import Any

SCALED = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """Two arrays with a weight."""
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.register_buffer("num_calls", torch.zeros((), dtype=torch.long))

    def forward(self, x, scale, keep):
        self.num_calls += 1
        return torch.where(keep, x * self.weight * scale, torch.zeros_like(x)).sum(dim=1)

rows = 128 * 4
features = 5

def get_inputs():
    return [torch.rand(rows, features), 3.5, torch.randint(0, 2, (rows, features)).bool()]

def get_init_inputs():
    return [features]
'''

MATMUL = """
import torch

class Model(torch.nn.Module):
    def forward(self, A, B):
        return torch.matmul(A, B)

M, K, N = 7, 11, 13

def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]

def get_init_inputs():
    return []
"""


TRIPLES = """
import torch

class Model(torch.nn.Module):
    def forward(self, q, k, v):
        return q * k + v

def get_inputs():
    return [torch.rand(300000) for _ in range(3)]

def get_init_inputs():
    return []
"""


WEIGHTED = """//@ task weighted
//@ scratch sums = x_0 float
//@ launch add grid=ceil_div(x_0,32) block=32 shared=128
//@ launch move grid=1 block=64
extern "C" __global__ void add(int x_0, int x_1, int keep_0, int keep_1, int weight_0, int y_0,
    const float* x, const float* scale, const int* keep, const float* weight, float* y, float* sums) {
  int row = blockIdx.x * 32 + threadIdx.x;
  if (row >= x_0) return;
  float sum = 0;
  for (int i = 0; i < x_1; i++) sum += keep[row * x_1 + i] ? x[row * x_1 + i] * weight[i] * scale[0] : 0;
  sums[row] = sum;
}
extern "C" __global__ void move(int x_0, int x_1, int keep_0, int keep_1, int weight_0, int y_0,
    const float* x, const float* scale, const int* keep, const float* weight, float* y, float* sums) {
  if (threadIdx.x < x_0) y[threadIdx.x] = sums[threadIdx.x];
}
"""
"""For SCALED with six rows, as a task of this name."""

NORM = """//@ task row_norm_d5
//@ launch row_norm grid=batch block=32
extern "C" __global__ void row_norm(int batch, int hidden, const float* x, const float* eps, float* y) {
  if (threadIdx.x) return;
  float sum = 0;
  for (int i = 0; i < hidden; i++) sum += x[blockIdx.x * hidden + i] * x[blockIdx.x * hidden + i];
  for (int i = 0; i < hidden; i++)
    y[blockIdx.x * hidden + i] = x[blockIdx.x * hidden + i] / sqrtf(sum / hidden + eps[0]);
}
"""
"""For `definition()`."""


def forward(body: str, *, before: str = "", result: str = "x") -> str:
    """A problem whose model does something else."""
    return f"""
import torch
{before}
class Model(torch.nn.Module):
    def forward(self, x):
        {body}
        return {result}

def get_inputs():
    return [torch.rand(3, 4)]

def get_init_inputs():
    return []
"""


def definition(**changes: Any) -> dict[str, Any]:
    """Rows over their root mean square, in the fields of flashinfer-bench."""
    told = {
        "name": "row_norm_d5",
        "op_type": "rmsnorm",
        "axes": {"Batch": {"type": "var"}, "Hidden": {"type": "const", "value": 5}},
        "inputs": {
            "x": {"shape": ["Batch", "Hidden"], "dtype": "float32"},
            "eps": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["Batch", "Hidden"], "dtype": "float32"}},
        "constraints": ["Batch < 1000", "len(x) > 2"],
        "reference": "import torch\n\ndef run(x, eps):\n"
        "    wide = x.to(torch.float32)\n"
        "    return (wide / torch.sqrt((wide * wide).mean(dim=1, keepdim=True) + eps)).to(x.dtype)\n",
    }
    return {**told, **changes}


def workload(**changes: Any) -> dict[str, Any]:
    told = {
        "uuid": "one",
        "axes": {"Batch": 9},
        "inputs": {"x": {"type": "random"}, "eps": {"type": "scalar", "value": 1e-6}},
    }
    return {**told, **changes}


def written_definition(folder: Path, told: dict[str, Any], *workloads: dict[str, Any]) -> Path:
    """As flashinfer-bench lays them out."""
    path = folder / f"{told['name']}.json"
    path.write_text(json.dumps(told))
    if workloads:
        lines = [json.dumps({"definition": told["name"], "workload": each}) for each in workloads]
        path.with_suffix(".jsonl").write_text("\n".join(lines))
    return path


DEPTHWISE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, groups=channels, bias=False)

    def forward(self, x):
        return self.convolution(x)

def get_inputs():
    return [torch.rand(16, 8, 19, 23)]  # Of 16 or more torch transforms where oneDNN is off.

def get_init_inputs():
    return [8]
"""
