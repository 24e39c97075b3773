"""The kernels that build formats on a GPU, run on the interpreter: bit for bit what the host builds."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.evaluator.interpreter import Buffer, PtxModule, launch, load_module
from sparsesmith.cuda.nvrtc import Nvrtc, find_library
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.format import Layout, Parameters, ParameterValue
from sparsesmith.formats.on_device.catalogue import FORMATS, build_on_device
from sparsesmith.formats.on_device.machine import BLOCK, SOURCE, DeviceArray, DeviceCsr
from sparsesmith.formats.on_device.rehearsal import rehearse_building
from sparsesmith.formats.on_device.sorting import exclusive_sums, sorted_by
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices, pattern_from_scipy
from tests.matrix.patterns import parameters_of, patterns

GARBAGE = 0x5A


class Interpreted:
    """Implements Machine. Its memory is the host's; what is empty holds garbage."""

    def __init__(self, module: PtxModule) -> None:
        self._module = module

    def upload(self, array: npt.NDArray[np.generic]) -> npt.NDArray[Any]:
        return np.ascontiguousarray(array).copy()

    def empty(self, length: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
        return np.full(length * np.dtype(dtype).itemsize, GARBAGE, np.uint8).view(dtype)

    def download(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return array

    def launch(self, kernel: str, num_threads: int, arguments: Sequence[npt.NDArray[Any] | int]) -> None:
        given = [
            each if isinstance(each, int) else Buffer(f"{kernel}[{place}]", each, writable=True)
            for place, each in enumerate(arguments)
        ]
        report = launch(self._module, kernel, -(-num_threads // BLOCK), BLOCK, given)
        assert report.finding is None, report.finding


@pytest.fixture(scope="module")
def machine() -> Interpreted:
    compiled = Nvrtc(find_library()).compile(SOURCE.read_text(), ["--gpu-architecture=compute_90", "-std=c++17"])
    assert compiled.succeeded, compiled.log
    return Interpreted(load_module(compiled.ptx))


class Recorded:
    """A machine, and the names of the kernels that were launched on it."""

    def __init__(self, machine: Interpreted) -> None:
        self.launched: set[str] = set()
        self._machine = machine
        self.upload, self.empty, self.download = machine.upload, machine.empty, machine.download

    def launch(self, kernel: str, num_threads: int, arguments: Sequence[DeviceArray | int]) -> None:
        self.launched.add(kernel)
        self._machine.launch(kernel, num_threads, arguments)


def giant_row() -> Pattern:
    dense = np.zeros((90, 3000))
    dense[40], dense[7, ::900], dense[89, 5] = 1, 1, 1
    return pattern_from_scipy(sp.csr_matrix(dense))


def random_rows(rows: int, cols: int, density: float) -> Pattern:
    return pattern_from_scipy(sp.random(rows, cols, density, format="csr", random_state=np.random.default_rng(rows)))


AWKWARD = {
    "one entry": pattern_from_indices(1, 1, [0], [0]),
    "one entry in the last of many rows": pattern_from_indices(700, 3, [699], [2]),
    "one row": pattern_from_indices(1, 300, [0] * 150, range(0, 300, 2)),
    "giant row": giant_row(),
    "very wide": random_rows(40, 70_000, 0.0004),
    "tall": random_rows(3000, 13, 0.2),
}
CHOICES: dict[str, tuple[dict[str, ParameterValue], ...]] = {
    "row_bins": (
        {},
        {"widths": "2,9,4000", "steps": 2, "max_lanes": 128, "index": "u16"},
        {"widths": "1,40,4000", "steps": 4, "index": "u18"},
        {"widths": "4000", "steps": 8, "max_lanes": 512, "index": "u20"},
        {"widths": "8"},
    ),
    "ell": ({},),
    "sell": ({"slice": 4}, {"slice": 64, "sigma": 256, "index": "u16"}, {"sigma": 0}, {"sigma": 7, "slice": 8}),
    "csr_tiles": (
        {"long_rows": "split"},
        {"chunks": 1, "vector": 2, "long_rows": "split", "index": "u16", "max_rows": 9},
        {"chunks": 3, "vector": 1},
    ),
    "dia": ({}, {"slice": 32}),
    "bsr": ({}, {"block_rows": 3, "block_cols": 4}, {"block_rows": 5, "block_cols": 5}),
    "bsell": ({}, {"block_rows": 3, "block_cols": 2, "slice": 4, "sigma": 64, "index": "u16"}),
}


def on_device(machine: Interpreted, name: str, pattern: Pattern, parameters: Parameters) -> Layout | None:
    arrays = (pattern.row_offsets, pattern.col_indices)
    csr = DeviceCsr(pattern.num_rows, pattern.num_cols, pattern.nnz, *map(machine.upload, arrays))
    return build_on_device(machine, csr, format_named(name), parameters, pattern)


def assert_same(machine: Interpreted, name: str, pattern: Pattern, parameters: Parameters) -> None:
    """Same sizes, same arrays of the same types, or refused with the same words."""
    try:
        expected = format_named(name).build(pattern, parameters)
    except InvalidProgram as refusal:
        with pytest.raises(InvalidProgram) as caught:
            on_device(machine, name, pattern, parameters)
        assert caught.value.message == refusal.message
        return
    built = on_device(machine, name, pattern, parameters)
    assert built is not None
    assert (dict(built.sizes), built.num_slots, dict(built.scratch)) == (
        dict(expected.sizes),
        expected.num_slots,
        dict(expected.scratch),
    )
    assert list(built.sizes) == list(expected.sizes)
    assert built.indices.keys() == expected.indices.keys()
    for array, (what, wanted) in zip(
        (*(built.indices[key] for key in expected.indices), built.value_sources),
        (*expected.indices.items(), ("value_sources", expected.value_sources)),
        strict=True,
    ):
        assert wanted is not None
        assert array is not None
        assert array.dtype == wanted.dtype, what
        np.testing.assert_array_equal(array, wanted, what)


def is_built_there(name: str, parameters: Parameters) -> bool:
    if name == "csr_tiles":
        return parameters["rows"] == "natural" and parameters["order"] == "row"
    if name == "row_bins":
        return parameters["numbering"] == "natural"
    return name != "sell" or (parameters["index"] in ("i32", "u16") and parameters["rows"] == "natural")


def without_hubs(parameters: Parameters) -> Parameters:
    return {**parameters, "hub_cols": 0} if "hub_cols" in parameters else parameters


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), pattern=patterns())
def test_any_pattern_gets_the_bits_of_the_host(
    machine: Interpreted, name: str, data: st.DataObject, pattern: Pattern
) -> None:
    any_parameters = parameters_of(format_named(name)).map(without_hubs)
    drawn = any_parameters.filter(lambda parameters: is_built_there(name, parameters))
    assert_same(machine, name, pattern, data.draw(drawn))


@pytest.mark.parametrize("pattern", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.parametrize("name", FORMATS)
def test_an_awkward_pattern_gets_the_bits_of_the_host_or_its_refusal(
    machine: Interpreted, name: str, pattern: Pattern
) -> None:
    for choice in CHOICES[name]:
        assert_same(machine, name, pattern, complete_parameters(format_named(name), choice))


def test_what_no_kernel_builds_is_left_to_the_host(machine: Interpreted) -> None:
    pattern = AWKWARD["tall"]
    for name, choice in (
        ("sell", {"index": "u8"}),
        ("sell", {"rows": "breadth"}),
        ("csr_tiles", {"order": "column"}),
        ("csr_tiles", {"hub_cols": 9}),
        ("row_bins", {"numbering": "breadth"}),
        ("coo", {}),
    ):
        assert on_device(machine, name, pattern, complete_parameters(format_named(name), choice)) is None


def test_a_rehearsal_launches_every_kernel_there_is(machine: Interpreted) -> None:
    recorded = Recorded(machine)
    rehearse_building(recorded)
    assert recorded.launched == set(re.findall(r"__global__ void (\w+)\(", SOURCE.read_text()))


def test_rows_of_one_key_keep_their_order(machine: Interpreted) -> None:
    keys = np.random.default_rng(3).integers(0, 70, 2100).astype(np.int32)
    order = sorted_by(machine, machine.upload(keys), keys.size, 69)
    np.testing.assert_array_equal(order, np.argsort(keys, kind="stable"))


def test_sums_cross_blocks_of_blocks(machine: Interpreted) -> None:
    numbers = np.random.default_rng(4).integers(0, 9, 70_000).astype(np.int32)
    np.testing.assert_array_equal(
        exclusive_sums(machine, machine.upload(numbers), numbers.size), np.cumsum(numbers) - numbers
    )
