"""What compiles is found once and named as one thing, wherever its machine code goes."""

import re

import pytest

from services.evaluator.compiling.toolchain import Toolchain, toolchain_versions
from sparsesmith.artifacts.cpp_header import cpp_header
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith_proto.kernel import DeviceDescription
from tests.artifacts.answers import CSR_PROGRAM, make_device, make_matrix, make_report

KERNEL = 'extern "C" __global__ void k(float* y) { y[threadIdx.x] = 1; }'


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    return Toolchain.find()


def test_its_name_holds_compiler_assembler_options_and_architecture(toolchain: Toolchain) -> None:
    device = make_device().model_copy(update={"versions": dict(toolchain.versions)})
    assert re.fullmatch(r"nvrtc \d+\.\d+, ptxas \d+\.\d+, -std=c\+\+17, sm_90", device.toolchain)
    assert toolchain_versions() == toolchain.versions


def test_it_builds_for_the_architecture_that_it_is_asked_for_by_the_options_that_it_names(toolchain: Toolchain) -> None:
    built = toolchain.build(KERNEL, "sm_90")
    assert built.succeeded and ".target sm_90" in built.ptx and built.cubin.startswith(b"\x7fELF")
    standard = "static_assert(__cplusplus == 201703L);\n"
    assert toolchain.versions["options"] == "-std=c++17"
    assert toolchain.build(standard + KERNEL, "sm_90").succeeded
    assert not toolchain.build(standard.replace("201703", "202002") + KERNEL, "sm_90").succeeded


def test_the_assembler_is_at_least_as_new_as_the_compiler(toolchain: Toolchain) -> None:
    assert toolchain.assembler.release >= toolchain.compiler.version()


def test_a_device_of_an_earlier_release_has_an_unknown_toolchain() -> None:
    written = make_device().model_dump_json()
    assert DeviceDescription.model_validate_json(written).toolchain == "an unknown toolchain, sm_90"


def test_header_and_loader_name_it(toolchain: Toolchain) -> None:
    matrix = make_matrix()
    device = make_device().model_copy(update={"versions": dict(toolchain.versions)})
    report = make_report(matrix).model_copy(update={"device": device})
    header = cpp_header(CSR_PROGRAM, report.workload, pattern_from_scipy(matrix), device)
    assert f"compiled by {device.toolchain};" in header
    assert f"nvcc {toolchain.versions['options']} -arch=sm_90" in header
    assert f"compiled by {device.toolchain}." in python_loader(report)
