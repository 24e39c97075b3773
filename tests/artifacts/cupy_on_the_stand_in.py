"""As much of CuPy as the Python loader uses, on the stand-in driver: arrays in its memory, kernels interpreted."""

import ctypes
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from services.evaluator.interpreter import Buffer, launch, load_module
from tests.operator.native_operators import NUM_SMS, Driver, ptx_of

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8


class DriverArray(np.ndarray[Any, Any]):
    """NumPy's, in the memory of the driver."""

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self) -> Any:
        return SimpleNamespace(id=0)

    def set(self, values: Any) -> None:
        self[...] = values

    def get(self) -> Any:
        return np.array(self)


class DriverDevice:
    def __init__(self) -> None:
        self.id, self.attributes = 0, {"MultiProcessorCount": NUM_SMS}

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class Function:
    """A kernel: called it is interpreted, through its handle the driver has it interpreted."""

    def __init__(self, driver: Driver, ptx: bytes, name: str) -> None:
        self._library, self._name, self._interpreted = driver.library, name, load_module(ptx.decode())
        module, self._handle = ctypes.c_void_p(), ctypes.c_void_p()
        driver.library.cuModuleLoadData(ctypes.byref(module), ptx)
        driver.library.cuModuleGetFunction(ctypes.byref(self._handle), module, name.encode())
        self.kernel = SimpleNamespace(ptr=self._handle.value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "max_dynamic_shared_size_bytes":
            self._library.cuFuncSetAttribute(self._handle, _MAX_DYNAMIC_SHARED_SIZE_BYTES, value)
        super().__setattr__(name, value)

    def __call__(self, grid: Any, block: Any, arguments: tuple[Any, ...], *, shared_mem: int) -> None:
        given = [
            Buffer(str(place), each.reshape(-1).view(np.uint8), writable=True)
            if isinstance(each, DriverArray)
            else int(each)
            for place, each in enumerate(arguments)
        ]
        report = launch(self._interpreted, self._name, grid, block, given, dynamic_shared_bytes=shared_mem)
        assert report.finding is None, report.finding


def stand_in_cupy(driver: Driver) -> ModuleType:
    """The module."""
    context = ctypes.c_void_p()
    driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    driver.library.cuCtxSetCurrent(context)

    def asarray(given: Any, dtype: Any = None) -> DriverArray:
        array = np.ascontiguousarray(given, dtype=dtype)
        made: DriverArray = driver.array(array).view.reshape(array.shape).view(DriverArray)
        return made

    def empty(shape: Any, dtype: Any) -> DriverArray:
        array = asarray(np.empty(shape, dtype))
        array.reshape(-1).view(np.uint8)[...] = 0xFF  # Not numbers.
        return array

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...]) -> None:
            assert options == ("-std=c++17",)
            self._ptx = ptx_of(code, "sm_90")

        def get_function(self, name: str) -> Function:
            return Function(driver, self._ptx, name)

    module: Any = ModuleType("cupy")
    module.cuda = SimpleNamespace(
        Device=DriverDevice,
        get_current_stream=lambda: SimpleNamespace(ptr=0),
        runtime=SimpleNamespace(CUDARuntimeError=OSError, getDevice=lambda: 0, getDeviceCount=lambda: 1),
    )
    module.ndarray, module.RawModule = DriverArray, RawModule
    module.asarray = module.ascontiguousarray = asarray
    module.empty = lambda shape, dtype: asarray(
        np.full(shape, 0xFF, np.uint8) if dtype == "uint8" else np.full(shape, np.nan, dtype)
    )
    module.maximum, module.take = np.maximum, np.take
    return module  # type: ignore[no-any-return]
