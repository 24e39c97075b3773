"""State that a module declares is seen in its machine code."""

import pytest

from services.evaluator.compilation import Compiled, compile_program
from services.evaluator.cubin import device_variable_bytes


def cubin_of(declarations: str, statement: str) -> bytes:
    source = f'{declarations}\nextern "C" __global__ void spmv(int* y) {{ {statement} }}\n'
    compiled = compile_program(source, "sm_90")
    assert isinstance(compiled, Compiled), compiled
    return compiled.cubin


@pytest.mark.parametrize(
    ("declarations", "statement", "num_bytes"),
    [
        ("", "y[threadIdx.x] = 1;", 0),
        ("__constant__ int table[4] = {1, 2, 3, 4};", "y[threadIdx.x] = table[y[0] & 3];", 0),
        ("__device__ int calls;", "y[threadIdx.x] = calls++;", 4),
        ("__device__ const int table[4] = {1, 2, 3, 4};", "y[threadIdx.x] = table[y[0] & 3];", 0),
        ("static __device__ double sums[2];", "sums[1] += 1; y[0] = (int)sums[1];", 16),
        ("", "static int calls; calls++; y[0] = calls;", 4),
    ],
    ids=["none", "constant table", "variable", "device table", "hidden variable", "static in a kernel"],
)
def test_device_variables_are_counted_and_constant_tables_are_not(
    declarations: str, statement: str, num_bytes: int
) -> None:
    assert device_variable_bytes(cubin_of(declarations, statement)) == num_bytes


def test_what_is_no_elf_file_is_refused() -> None:
    with pytest.raises(ValueError, match="not a 64-bit ELF"):
        device_variable_bytes(b"// a PTX text")
