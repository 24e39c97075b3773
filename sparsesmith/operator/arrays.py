"""Dense operands as users hand them in: NumPy, CuPy and torch arrays, told apart without importing any of them.

Whatever is wrong with one is an InvalidInput that names the argument.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from numbers import Real
from typing import Any, Literal

import numpy as np

from sparsesmith.errors import InvalidInput
from sparsesmith_proto.message import ElementType

Kind = Literal["numpy", "cupy", "torch"]
Shape = tuple[int, ...]
Likeness = Callable[[Any], bool]

_REAL = re.compile(r"bool_?|u?int\d+|b?float\d+")


def kind_of(array: Any) -> Kind:
    """Of an array; what is none counts as NumPy's."""
    return _kind_of_type(array.__class__)


@cache
def _kind_of_type(kind: type) -> Kind:
    return _KINDS.get(kind.__module__.partition(".")[0], "numpy")


def type_name(array: Any) -> str:
    """Of an array's elements, as NumPy spells it."""
    return _name_of(array.dtype)


@cache
def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def _is_real(name: str) -> bool:
    return _REAL.fullmatch(name) is not None


_KINDS: Mapping[str, Kind] = {"cupy": "cupy", "torch": "torch"}


def real_array(given: Any, name: str) -> Any:
    """What was given as an array of real numbers of its own kind. Raises InvalidInput."""
    if kind_of(given) != "numpy":
        array = given
    else:
        try:
            array = np.asarray(given)
        except ValueError as error:  # Rows of different lengths.
            raise refused(name, f"is no array: {error}", type(given).__name__, "an array") from error
    if not _is_real(type_name(array)):
        raise refused(name, f"holds {type_name(array)}, not real numbers", type_name(array), "real numbers")
    return array


def operand(given: Any, num_given: int, dimensions: Sequence[int]) -> Any:
    """x as an array with `num_given` rows, of one or of two dimensions as these allow; one column counts as a vector.
    Raises InvalidInput."""
    x = real_array(given, "x")
    columns = x.shape[1] if x.ndim == 2 and 2 in dimensions else 1
    check_shape(x, "x", [*([(num_given,)] if 1 in dimensions else []), (num_given, columns)])
    return x


def check_shape(array: Any, name: str, expected: Sequence[Shape]) -> None:
    """Raises InvalidInput unless the array has one of these shapes."""
    if (shape := tuple(array.shape)) not in expected:
        listed = " or ".join(map(str, expected))
        raise refused(name, f"has shape {shape}: expected {listed}", shape, listed)


def check_exact(array: Any, name: str, element_type: ElementType) -> None:
    """Raises InvalidInput for what a call with `out` would have to copy: it never allocates."""
    if type_name(array) != element_type:
        raise refused(
            name, f"holds {type_name(array)}: with out= it must be {element_type}", type_name(array), element_type
        )
    if not _is_contiguous(array):
        raise refused(
            name, "is not contiguous (row-major): with out= it must be", strides_of(array), "contiguous, row-major"
        )


def check_type(array: Any, name: str, element_type: ElementType) -> None:
    """Raises InvalidInput for an array of another type."""
    if type_name(array) != element_type:
        raise refused(name, f"holds {type_name(array)}: expected {element_type}", type_name(array), element_type)


def check_place(array: Any, name: str, x: Any) -> None:
    """Raises InvalidInput for an array in another memory than x."""
    if place_of(array) != place_of(x):
        raise refused(name, f"lies on {place_of(array)}, x on {place_of(x)}", place_of(array), place_of(x))


def of_type(tensor: Any, element_type: ElementType) -> Any:
    """A tensor of torch in another type; autograd follows."""
    import torch

    return tensor.to(getattr(torch, element_type))


def put_at(values: Any, places: "np.ndarray[Any, Any]") -> Any:
    """An array of the same kind whose element places[k] is values[k]."""
    match kind_of(values):
        case "numpy":
            found = np.empty_like(values)
            found[places] = values
        case "cupy":
            import cupy

            found = cupy.empty_like(values)
            found[cupy.asarray(places)] = values
        case "torch":
            import torch

            found = torch.empty_like(values)
            found[torch.as_tensor(places, device=values.device).long()] = values
    return found


def check_out(out: Any, x: Any, shape: Shape, element_type: ElementType) -> None:
    """Raises InvalidInput unless `out` can take a product of `x`: of its kind and place, apart from it in memory."""
    if out is x:
        raise refused("out", "is x itself: a product cannot be written over what it reads", "x", "other memory")
    if not isinstance(out, np.ndarray) and kind_of(out) == "numpy":
        raise refused("out", f"is no array but {type(out).__name__}", type(out).__name__, "an array")
    if kind_of(out) != kind_of(x):
        raise refused("out", f"is an array of {kind_of(out)}, x of {kind_of(x)}", kind_of(out), kind_of(x))
    check_shape(out, "out", (shape,))
    check_exact(out, "out", element_type)
    if kind_of(out) == "numpy" and not out.flags.writeable:
        raise refused("out", "is read-only", "read-only", "writeable")
    if getattr(out, "requires_grad", False):
        raise refused("out", "requires a gradient, which what is written into cannot have", "requires_grad", "none")
    check_place(out, "out", x)
    check_apart(out, x)


def check_apart(out: Any, x: Any) -> None:
    """Raises InvalidInput where contiguous arrays in one place overlap."""
    at, from_x = address_of(out), address_of(x)
    if at < from_x + x.nbytes and from_x < at + out.nbytes:
        raise refused("out", "overlaps x in memory", "overlapping", "other memory")


def apart(product: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    """The product of x, out and a scale, which refuses those that overlap."""

    def checked(x: Any, out: Any, scale: Any) -> Any:
        check_apart(out, x)
        return product(x, out, scale)

    return checked


def likeness(array: Any) -> Likeness | None:
    """Whether another array is one that all checks find as this one: they look at nothing else but at where it lies.
    None for what is no array, and for tensors that are not dense or require a gradient."""
    match _KINDS.get(type(array).__module__.partition(".")[0]):
        case "cupy":
            return _like_cupys(array)
        case "torch":
            return _like_torchs(array)
        case _:
            return _like_numpys(array) if isinstance(array, np.ndarray) else None


def _like_numpys(array: Any) -> Likeness:
    kind, dtype, shape, strides = type(array), array.dtype, array.shape, array.strides
    writeable = array.flags.writeable

    def is_alike(other: Any) -> bool:
        return (
            type(other) is kind
            and other.shape == shape
            and other.strides == strides
            and other.dtype == dtype
            and other.flags.writeable is writeable
        )

    return is_alike


def _like_cupys(array: Any) -> Likeness:
    kind, dtype, shape, strides, device = type(array), array.dtype, array.shape, array.strides, array.data.device_id

    def is_alike(other: Any) -> bool:
        return (
            type(other) is kind
            and other.shape == shape
            and other.strides == strides
            and other.dtype == dtype
            and other.data.device_id == device
        )

    return is_alike


def _like_torchs(array: Any) -> Likeness | None:
    kind, layout, dtype, shape = type(array), array.layout, array.dtype, array.shape
    if array.requires_grad or str(layout) != "torch.strided":
        return None
    is_contiguous, device = array.is_contiguous(), array.device

    def is_alike(other: Any) -> bool:
        return (
            type(other) is kind
            and other.layout is layout
            and other.dtype is dtype
            and other.shape == shape
            and other.is_contiguous() is is_contiguous
            and not other.requires_grad
            and other.device == device
        )

    return is_alike


def scalar(given: Any, name: str) -> float:
    """A factor. Raises InvalidInput for what is no finite real number."""
    if type(given) is float and math.isfinite(given):
        return given
    if not isinstance(given, Real | np.generic) or isinstance(given, np.complexfloating):
        raise refused(name, f"is {type(given).__name__}, not a real number", type(given).__name__, "a real number")
    if not math.isfinite(number := float(given)):
        raise refused(name, f"is {number}: must be finite", number, "finite")
    return number


def place_of(array: Any) -> str:
    """The memory that an array lies in: `host`, `cuda:0`."""
    match kind_of(array):
        case "numpy":
            return "host"
        case "cupy":
            return f"cuda:{array.device.id}"
        case "torch":
            return f"cuda:{array.device.index}" if array.is_cuda else "host"


def refused(name: str, reason: str, value: object, limit: object) -> InvalidInput:
    """An error that begins with the argument's name."""
    return InvalidInput(f"{name} {reason}", field=name, value=value, limit=limit)


def address_of(array: Any) -> int:
    """Of its first element."""
    return _ADDRESSES[kind_of(array)](array)


_ADDRESSES: Mapping[Kind, Callable[[Any], int]] = {
    "numpy": lambda array: int(array.__array_interface__["data"][0]),
    "cupy": lambda array: int(array.data.ptr),
    "torch": lambda array: int(array.data_ptr()),
}


def strides_of(array: Any) -> tuple[int, ...]:
    """In the array's own unit."""
    return tuple(array.stride()) if kind_of(array) == "torch" else tuple(array.strides)


def _is_contiguous(array: Any) -> bool:
    return bool(array.is_contiguous() if kind_of(array) == "torch" else array.flags.c_contiguous)
