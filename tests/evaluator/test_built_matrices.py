"""Formats built once, and ahead on all cores where that is worth it."""

import numpy as np
import pytest

from benchmarks.matrices.generated import stencil_2d
from services.evaluator.isolation.built_formats import BuiltMatrices, Elsewhere
from sparsesmith.errors import InvalidProgram
from sparsesmith.formats.format import Format, Layout, Parameters
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.kernel import Workload

PATTERN = stencil_2d(200, 5)
ARGUMENTS = {
    "csr": "const int* row_offsets, const int* col_indices",
    "ell": "int width, int stride, const int* col_indices",
    "coo": "const int* row_indices, const int* col_indices",
    "csr index=u16": "const int* row_offsets, const unsigned short* col_indices",
}


def program(storage: str) -> KernelProgram:
    text = f"""//@ format {storage}
//@ launch spmv grid=1 block=32
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, {ARGUMENTS[storage]},
    const float* values, const float* x, float* y) {{}}
"""
    return parse_program(text, "spmv", "float32")


def problem_of(pattern: Pattern) -> Problem:
    return Problem(Workload(pattern=pattern.digest, operation="spmv", element_type="float32"), pattern)


def test_a_format_is_built_once() -> None:
    matrices = BuiltMatrices(problem_of(PATTERN))
    assert matrices.get(program("ell")) is matrices.get(program("ell"))
    assert matrices.get(program("ell")).conversion_ms > 0


def test_formats_built_ahead_are_those_that_are_asked_for() -> None:
    ahead, alone = BuiltMatrices(problem_of(PATTERN)), BuiltMatrices(problem_of(PATTERN))
    programs = [program(storage) for storage in ("csr", "ell", "coo", "ell")]
    ahead.build_ahead(programs, limit_s=60)
    assert len(ahead.held) == 3
    built = [ahead.get(each) for each in programs]
    assert len(ahead.held) == 3
    for each, expected in zip(built, map(alone.get, programs), strict=True):
        assert (each.key, each.format_bytes) == (expected.key, expected.format_bytes)
        for name, array in expected.layout.indices.items():
            assert np.array_equal(each.layout.indices[name], array)


def test_a_format_that_does_not_fit_is_refused_when_it_is_asked_for() -> None:
    wide = stencil_2d(300, 5)
    matrices = BuiltMatrices(problem_of(wide))
    matrices.build_ahead([program("csr index=u16"), program("coo")], limit_s=60)
    with pytest.raises(InvalidProgram):
        matrices.get(program("csr index=u16"))


def test_nothing_is_begun_when_the_time_is_over() -> None:
    matrices = BuiltMatrices(problem_of(PATTERN))
    matrices.build_ahead([program("ell")], limit_s=-1)
    assert not matrices._matrices


def test_the_least_recently_used_go_first() -> None:
    unlimited = BuiltMatrices(problem_of(PATTERN))
    csr, ell, coo = (unlimited.get(program(storage)).format_bytes for storage in ("csr", "ell", "coo"))
    matrices = BuiltMatrices(problem_of(PATTERN), max_bytes=csr + max(ell, coo))
    first, second = matrices.get(program("csr")), matrices.get(program("ell"))
    assert matrices.get(program("csr")) is first
    matrices.get(program("coo"))
    assert matrices.get(program("csr")) is first
    assert matrices.get(program("ell")) is not second


class Device:
    """Builds what the host does, but for `coo`, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def build(self, key: str, format_: Format, parameters: Parameters) -> Layout | None:
        self.asked.append(format_.name)
        return None if format_.name == "coo" else format_.build(PATTERN, parameters)


def test_what_is_wanted_at_once_is_built_by_the_device_and_its_conversion_by_the_host_later() -> None:
    device = Device()
    matrices = BuiltMatrices(problem_of(PATTERN), elsewhere=Elsewhere(device.build, always=False))
    first = matrices.get_at_once(program("ell"))
    assert (first.built_on, matrices.get_at_once(program("ell"))) == ("device", first)
    later = matrices.get(program("ell"))
    assert (later.built_on, later.key) == ("host", first.key)
    assert matrices.get_at_once(program("ell")) is later, "what the host has built need not be built again"
    assert device.asked == ["ell"]


def test_what_the_device_does_not_build_the_host_does() -> None:
    device = Device()
    matrices = BuiltMatrices(problem_of(PATTERN), elsewhere=Elsewhere(device.build, always=False))
    built = matrices.get_at_once(program("coo"))
    assert (built.built_on, device.asked) == ("host", ["coo"])
    assert matrices.get(program("coo")) is built


def test_a_device_that_always_builds_is_asked_for_every_program() -> None:
    device = Device()
    matrices = BuiltMatrices(problem_of(PATTERN), elsewhere=Elsewhere(device.build, always=True))
    assert matrices.get(program("ell")).built_on == "device"
    assert matrices.get_at_once(program("ell")) is matrices.get(program("ell"))
    assert device.asked == ["ell"]
