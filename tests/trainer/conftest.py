"""A tokenizer, a tiny policy and measured programs, small enough for a CPU."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from services.trainer.policy_model import PolicyNetworks, PolicySize, new_language_model
from services.trainer.tokenizer import TokenizerSize, train_tokenizer
from sparsesmith.policy.encoder import MatrixEncoder

TINY = PolicySize(hidden=64, layers=2, heads=2, kv_heads=1, head_dim=32, intermediate=128, max_positions=1024)


def make_program(lanes: int, element: str = "float") -> str:
    return (
        "//@ format csr index=i32\n"
        f"//@ launch spmv grid=ceil_div(num_rows,{256 // lanes}) block=256\n"
        'extern "C" __global__ void __launch_bounds__(256) spmv(int num_rows, int num_cols, int nnz, '
        "const int* __restrict__ row_offsets, const int* __restrict__ col_indices, "
        f"const {element}* __restrict__ values, const {element}* __restrict__ x, {element}* __restrict__ y) {{\n"
        f"  int row = (blockIdx.x * blockDim.x + threadIdx.x) / {lanes};\n"
        "  if (row >= num_rows) return;\n"
        f"  {element} sum = 0;\n"
        f"  for (int j = row_offsets[row] + threadIdx.x % {lanes}; j < row_offsets[row + 1]; j += {lanes}) "
        "sum += values[j] * x[col_indices[j]];\n"
        f"  for (int step = {lanes // 2}; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);\n"
        f"  if (threadIdx.x % {lanes} == 0) y[row] = sum;\n"
        "}\n"
    )


def make_record(**changes: Any) -> Mapping[str, Any]:
    record = {
        "pattern": "tridiagonal",
        "operation": "spmv",
        "element_type": "float32",
        "num_dense_cols": 1,
        "family": "csr_vector",
        "parameters": {"lanes": 4},
        "program": make_program(4),
        "median_us": 2.0,
        "best_baseline_us": 4.0,
    }
    return {**record, **changes}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny tensors: more threads would only wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    programs = [make_program(lanes, element) for lanes in (2, 4, 8, 16, 32) for element in ("float", "double")]
    return train_tokenizer(programs, programs, TokenizerSize(vocabulary=640, phrases=120))


@pytest.fixture
def networks(tokenizer: Tokenizer) -> PolicyNetworks:
    return make_networks(tokenizer)


def make_networks(tokenizer: Tokenizer) -> PolicyNetworks:
    model = new_language_model(TINY, tokenizer.get_vocab_size(), seed=0)
    torch.manual_seed(0)
    return PolicyNetworks(model, MatrixEncoder("structural", TINY.hidden))
