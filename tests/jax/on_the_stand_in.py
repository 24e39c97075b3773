"""What XLA calls on a GPU, run by test_jax.py in a process that finds the stand-in as libcuda.so.1."""

import ctypes
import sys
from typing import Any

import numpy as np

from sparsesmith.jax import targets
from sparsesmith.operator import Operator
from sparsesmith.operator.native.library import NativeOperator
from sparsesmith.operator.registry import registered
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report
from tests.operator.native_operators import DeviceArray, Driver, make_image

MATRIX, STREAM, FLOAT32 = make_matrix(), 11, 11


def main() -> None:
    driver, call = Driver.open(), _call_frame(sys.argv[1])
    driver.library.stand_in_capability(9, 0)
    bound = registered((operator := Operator(make_report(MATRIX), MATRIX)).handle)
    targets.ready(bound, with_values=False)
    held, image = targets._HELD[bound], make_image(MATRIX, CSR_PROGRAM, transposed=CSR_PROGRAM)
    for with_values in (False, True):
        held.operators.append(NativeOperator(image))
        targets._point(held.entry, held.operators[-1], with_values)
    targets._put(targets._targets(), bound, held)
    numbers = np.random.default_rng(2)
    values = driver.array(numbers.standard_normal(MATRIX.nnz).astype("float32"))
    other = MATRIX.copy()
    other.data = values.view.astype("float64")
    for transposed, given, csr in ((0, None, MATRIX), (1, None, MATRIX.T), (0, values, other), (1, values, other.T)):
        x = driver.array(numbers.standard_normal(csr.shape[1]).astype("float32"))
        y = driver.array(np.full(csr.shape[0], np.nan, "float32"))
        driver.launched.clear()
        assert call(operator.handle, transposed, x, given, y) is None
        assert {each.stream for each in driver.launched} == {STREAM} and driver.launched[-1].kernel == "spmv"
        np.testing.assert_allclose(y.view, csr @ x.view.astype("float64"), rtol=1e-4, atol=1e-4)
    wide = driver.array(np.zeros(60, "float32"))
    assert b"are not of the operator's shape" in call(operator.handle, 0, wide, None, y)
    assert b"the operator is gone" in call(10**9, 0, x, None, y)
    targets._forget(operator.handle, held)
    assert b"the operator is gone" in call(operator.handle, 0, x, None, y)
    print("right")


def _call_frame(path: str) -> Any:
    function = ctypes.CDLL(path).call_frame
    function.restype = ctypes.c_char_p
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, *[number] * 3, pointer, number, pointer, number, pointer, number, pointer]
    handler = ctypes.cast(targets._targets().sparsesmith_ffi_on_a_gpu, pointer)

    def call(handle: int, transposed: int, x: DeviceArray, values: DeviceArray | None, y: DeviceArray) -> Any:
        given = (None, 0) if values is None else (values.address, values.shape[0])
        x_and_y = (x.address, x.shape[0]), (y.address, y.shape[0])
        return function(handler, handle, transposed, FLOAT32, *x_and_y[0], *given, *x_and_y[1], STREAM)

    return call


if __name__ == "__main__":
    main()
