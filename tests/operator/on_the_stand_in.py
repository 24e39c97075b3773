"""The C library on the stand-in driver; run by test_native.py in a process that finds it as libcuda.so.1."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from sparsesmith.elements import ELEMENTS, dtype_of
from sparsesmith.errors import InvalidInput, Unavailable
from sparsesmith.families import propose
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import operation_named
from sparsesmith.operations.texts import programs_for
from sparsesmith.operator.backend import PLAIN, Scale
from sparsesmith.operator.native.library import Csr, NativeOperator
from sparsesmith.program.program import parse_program
from sparsesmith.program.starting import starting_formats, starting_program
from tests.artifacts.answers import CSR_PROGRAM, make_matrix
from tests.kernels.corpus import CorpusProgram, corpus
from tests.operator.native_operators import DeviceArray, Driver, exact, make_image

MATRIX = make_matrix()
ATOMIC = programs_for(operation_named("spmv"), "float32")["plain_coo_atomic"]
SPECIAL = (
    *("csr_block_reduction", "csr_dynamic_shared", "csr_macros_and_conditions", "csr_programmatic", "csr_scratch"),
    *("csr_twelve_launches", "hubs", "panels_rounds", "row_bins_u18", "row_bins_breadth"),
)
GOOD = [program for program in corpus("good") if program.name.removeprefix("good/") in SPECIAL]
TWICE = CSR_PROGRAM.replace("  float sum = 0;", "  y[row] = 0;\n  float sum = 0;")


@pytest.fixture
def driver() -> Iterator[Driver]:
    """Nothing is held when a test has ended."""
    driver = Driver.open()
    driver.library.stand_in_capability(9, 0)
    yield driver
    assert driver.library.stand_in_held() == 0


def free(*arrays: DeviceArray) -> None:
    for array in arrays:
        array.free()


def check_product(driver: Driver, image: bytes, matrix: Any, kind: Any = "float32", columns: int = 0) -> NativeOperator:
    """Both plain and scaled, on vectors of normal numbers."""
    operator, shape = NativeOperator(image), (columns,) if columns else ()
    numbers = np.random.default_rng(1)
    x = driver.array(numbers.standard_normal((matrix.shape[1], *shape)).astype(dtype_of(kind)))
    y = driver.array(np.full((matrix.shape[0], *shape), np.nan).astype(dtype_of(kind)))
    product = exact(matrix, dtype_of(kind)) @ x.view.astype(np.float64)
    size = abs(exact(matrix, dtype_of(kind))) @ abs(x.view.astype(np.float64)) + 1
    error = {"float64": 1e-13, "float32": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}[kind] * size
    operator.apply(x.address, y.address, 0)
    assert np.all(np.abs(y.view - product) <= error)
    for alpha, beta in ((2.0, 0.0), (1.0, 1.0), (-0.5, 3.0), (0.0, 2.0)):
        y.view[...] = np.nan if beta == 0 else numbers.standard_normal(y.shape).astype(dtype_of(kind))
        expected = alpha * product + (0 if beta == 0 else beta * y.view.astype(np.float64))
        operator.apply(x.address, y.address, 0, alpha, beta)
        assert np.all(np.abs(y.view - expected) <= 8 * error), (alpha, beta)
    free(x, y)
    return operator


@pytest.mark.parametrize("format_name", starting_formats("spmv"))
def test_programs_of_every_format_multiply_and_scale(format_name: str, driver: Driver) -> None:
    matrix = make_matrix(70, 50, 0.1)
    operator = check_product(driver, make_image(matrix, starting_program(format_name, "spmv", "float32")), matrix)
    assert (operator.info.num_rows, operator.info.num_cols, operator.info.nnz) == (70, 50, matrix.nnz)
    operator.close()


@pytest.mark.parametrize("element_type", list(ELEMENTS))
def test_every_element_type_is_multiplied(element_type: Any, driver: Driver) -> None:
    program = programs_for(operation_named("spmv"), element_type)["plain_csr_scalar"]
    operator = check_product(driver, make_image(MATRIX, program, element_type=element_type), MATRIX, element_type)
    assert operator.info.is_scaled_in_place == (element_type in ("float32", "float64"))
    operator.close()


def test_a_matrix_of_columns_is_multiplied(driver: Driver) -> None:
    program = starting_program("csr", "spmm", "float64")
    image = make_image(MATRIX, program, operation="spmm", element_type="float64", num_dense_cols=5)
    check_product(driver, image, MATRIX, "float64", columns=5).close()


@pytest.mark.parametrize("program", corpus("good"), ids=lambda each: each.name)
def test_good_programs_multiply_scale_and_take_new_values(program: CorpusProgram, driver: Driver) -> None:
    matrix, kind = make_matrix(100, 80, 0.05), program.element_type
    workload: Any = {"operation": program.operation, "element_type": kind, "num_dense_cols": program.num_dense_cols}
    shape = (program.num_dense_cols,) if program.operation == "spmm" else ()
    operator = check_product(driver, make_image(matrix, program.text, **workload), matrix, kind, *shape)
    renewed, given = matrix.copy(), np.random.default_rng(2).standard_normal(matrix.nnz).astype(dtype_of(kind))
    renewed.data = given.astype(np.float64)
    values, x = driver.array(given), driver.array(np.ones((80, *shape), dtype_of(kind)))
    y = driver.array(np.full((100, *shape), np.nan).astype(dtype_of(kind)))
    operator.update_values(values.address, matrix.nnz, 0)
    operator.apply(x.address, y.address, 0)
    np.testing.assert_allclose(y.view, renewed @ x.view.astype(np.float64), rtol=1e-4, atol=1e-4)
    operator.close()
    free(values, x, y)


def test_families_scale_where_they_store_but_for_those_that_store_twice(driver: Driver) -> None:
    matrix = make_matrix(100, 80, 0.05)
    in_place: dict[str, int] = {}
    for instance in propose(pattern_from_scipy(matrix), "spmv", "float32", 1, limit=8):
        operator = check_product(driver, make_image(matrix, instance.program), matrix)
        in_place.setdefault(instance.family, operator.info.is_scaled_in_place)
        operator.close()
    twice = {"coo_segmented", "hyb_segmented"}
    assert {family for family, is_in_place in in_place.items() if not is_in_place} <= twice
    assert sum(in_place.values()) >= 3


@pytest.mark.parametrize(("program", "launches"), [(CSR_PROGRAM, ["spmv"]), (TWICE, ["spmv", "sparsesmith_add"])])
def test_a_program_that_stores_twice_is_found_out_and_scaled_beside(
    program: str, launches: list[str], driver: Driver
) -> None:
    operator = check_product(driver, make_image(MATRIX, program), MATRIX)
    assert operator.info.is_scaled_in_place == (program == CSR_PROGRAM)
    driver.launched.clear()
    x, y = driver.array(np.ones(30, np.float32)), driver.array(np.ones(40, np.float32))
    operator.apply(x.address, y.address, 7, 2, 1)
    assert [each.kernel for each in driver.launched] == launches
    assert {each.stream for each in driver.launched} == {7}
    operator.close()
    free(x, y)


def test_a_scaled_kernel_that_the_device_refuses_is_not_used(driver: Driver) -> None:
    plain = len(parse_program(CSR_PROGRAM, "spmv", "float32").signature)
    driver.most_parameters = plain
    operator = NativeOperator(make_image(MATRIX, CSR_PROGRAM))
    driver.most_parameters = None
    assert not operator.info.is_scaled_in_place and operator.info.has_scratch
    x, y = driver.array(np.ones(30, np.float32)), driver.array(np.ones(40, np.float32))
    operator.apply(x.address, y.address, 0, 2, 3)
    np.testing.assert_allclose(y.view, 2 * (MATRIX @ np.ones(30)) + 3, rtol=1e-5)
    driver.most_parameters = plain - 1
    with pytest.raises(Unavailable, match=r"CUDA error 701"):
        NativeOperator(make_image(MATRIX, CSR_PROGRAM))
    driver.most_parameters = None
    operator.close()
    free(x, y)


def test_atomic_additions_are_scaled_in_place(driver: Driver) -> None:
    operator = check_product(driver, make_image(MATRIX, ATOMIC), MATRIX)
    assert operator.info.is_scaled_in_place and not operator.info.has_scratch
    operator.close()


def test_a_bound_product_of_arrays_finds_what_overlaps_and_refuses_once_it_is_closed(driver: Driver) -> None:
    operator = NativeOperator(make_image(MATRIX, CSR_PROGRAM, transposed=CSR_PROGRAM))
    given, results = driver.array(np.arange(100, dtype=np.float32)), driver.array(np.arange(40, dtype=np.float32))
    x, overlapping, y = map(torch.from_numpy, (given.view[:30], given.view[29:69], results.view))
    streams = itertools.count(7)
    forward, backward = (
        operator.of_arrays("torch", lambda: next(streams), transposed=transposed) for transposed in (False, True)
    )
    driver.launched.clear()
    before = y.double().numpy().copy()
    assert forward(x, y, Scale(2, 0.5)) is y
    np.testing.assert_allclose(y, 2 * (MATRIX @ x.double().numpy()) + before / 2, rtol=1e-5)
    forward(x, y, PLAIN)
    np.testing.assert_allclose(y, MATRIX @ x.double().numpy(), rtol=1e-5, atol=1e-4)
    backward(y, x, PLAIN)
    np.testing.assert_allclose(x, MATRIX.T @ y.double().numpy(), rtol=1e-4, atol=1e-3)
    assert [each.stream for each in driver.launched] == [7, 8, 9]
    with pytest.raises(InvalidInput, match=r"^out overlaps x"):
        forward(x, overlapping, PLAIN)
    operator.close()
    with pytest.raises(InvalidInput, match="op is NULL"):
        forward(x, y, PLAIN)
    free(given, results)


def test_a_product_allocates_nothing(driver: Driver) -> None:
    for program in (CSR_PROGRAM, ATOMIC):
        operator = NativeOperator(make_image(MATRIX, program))
        x, y = driver.array(np.ones(30, np.float32)), driver.array(np.ones(40, np.float32))
        before = driver.library.stand_in_allocations()
        operator.apply(x.address, y.address, 0)
        operator.apply(x.address, y.address, 0, 2, 3)
        assert driver.library.stand_in_allocations() == before
        operator.close()
        free(x, y)


@pytest.mark.parametrize("format_name", starting_formats("spmv"))
def test_the_transpose_shares_new_values(format_name: str, driver: Driver) -> None:
    program = starting_program(format_name, "spmv", "float32")
    operator = NativeOperator(make_image(MATRIX, program, transposed=program))
    info = operator.info
    assert (info.has_transposed, info.num_rows, info.num_cols) == (1, 40, 30)
    values = driver.array(np.random.default_rng(2).standard_normal(MATRIX.nnz).astype(np.float32))
    operator.update_values(values.address, MATRIX.nnz, 0)
    updated = MATRIX.copy()
    updated.data = values.view.astype(np.float64)
    x, y = driver.array(np.ones(30, np.float32)), driver.array(np.ones(40, np.float32))
    operator.apply_transposed(y.address, x.address, 0, 2, 1)
    np.testing.assert_allclose(x.view, 2 * (updated.T @ np.ones(40)) + 1, rtol=1e-5, atol=1e-5)
    operator.apply(x.address, y.address, 0)
    np.testing.assert_allclose(y.view, updated @ x.view, rtol=1e-4, atol=1e-4)
    read = np.zeros(MATRIX.nnz, np.float32)
    operator.read_values(read)
    np.testing.assert_array_equal(read, values.view)
    operator.close()
    free(values, x, y)


def test_an_operator_takes_the_values_of_a_matrix_on_the_device(driver: Driver) -> None:
    arrays = [driver.array(MATRIX.indptr.astype(np.int32)), driver.array(MATRIX.indices.astype(np.int32))]
    arrays.append(driver.array((MATRIX.data * 3).astype(np.float32)))
    csr = Csr(40, 30, MATRIX.nnz, *(array.address for array in arrays))
    operator = NativeOperator(make_image(MATRIX, CSR_PROGRAM, without=["values"]), csr)
    x, y = driver.array(np.ones(30, np.float32)), driver.array(np.ones(40, np.float32))
    operator.apply(x.address, y.address, 0)
    np.testing.assert_allclose(y.view, 3 * (MATRIX @ np.ones(30)), rtol=1e-5)
    operator.close()
    for change, field in ((0, "csr.row_offsets"), (1, "csr.col_indices")):
        arrays[change].view[3] += 1
        with pytest.raises(InvalidInput, match=f"{field} is another than the kernel was tuned for"):
            NativeOperator(make_image(MATRIX, CSR_PROGRAM), csr)
        arrays[change].view[3] -= 1
    with pytest.raises(InvalidInput, match="csr is 40 x 31 with"):
        NativeOperator(make_image(MATRIX, CSR_PROGRAM), Csr(40, 31, MATRIX.nnz))
    with pytest.raises(InvalidInput, match=r"csr\.row_offsets is NULL"):
        NativeOperator(make_image(MATRIX, CSR_PROGRAM), Csr(40, 30, MATRIX.nnz))
    for array in (*arrays, x, y):
        array.free()


def test_what_is_wrong_with_an_argument_is_said_by_its_name(driver: Driver) -> None:
    operator = NativeOperator(make_image(MATRIX, CSR_PROGRAM))
    memory = driver.array(np.ones(100, np.float32))
    base = memory.address
    wrong: list[tuple[Callable[[], None], str]] = [
        (lambda: operator.apply(0, base, 0), "x is NULL"),
        (lambda: operator.apply(base, 0, 0), "y is NULL"),
        (lambda: operator.apply(base, base, 0), "y overlaps x"),
        (lambda: operator.apply(base, base + 4 * 29, 0), "y overlaps x"),
        (lambda: operator.apply(base + 4 * 39, base, 0), "y overlaps x"),
        (lambda: operator.update_values(base, MATRIX.nnz - 1, 0), "num_values is .*: the matrix has"),
        (lambda: operator.update_values(0, MATRIX.nnz, 0), "values is NULL"),
    ]
    for call, words in wrong:
        with pytest.raises(InvalidInput, match=words):
            call()
    with pytest.raises(Unavailable, match="saved without its transpose"):
        operator.apply_transposed(base, base + 200, 0)
    operator.close()
    with pytest.raises(InvalidInput, match="op is NULL"):
        operator.apply(base, base + 200, 0)
    memory.free()


def test_another_architecture_says_both_and_what_helps(driver: Driver) -> None:
    driver.library.stand_in_capability(8, 0)
    with pytest.raises(InvalidInput, match=r"machine code for sm_90, this GPU is sm_80.*recompile=True"):
        NativeOperator(make_image(MATRIX, CSR_PROGRAM))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_damaged_image_is_refused(share: float, driver: Driver) -> None:
    image = make_image(MATRIX, CSR_PROGRAM)
    with pytest.raises(InvalidInput, match=r"damaged|no saved operator"):
        NativeOperator(image[: int(share * len(image))])
    version = image[:8] + bytes([2]) + image[9:]
    with pytest.raises(InvalidInput, match="of version 2: this library reads 1"):
        NativeOperator(version)
    place = image.index(b"plan 1")
    with pytest.raises(InvalidInput, match="damaged: section plan is not what was written"):
        NativeOperator(image[:place] + b"?" + image[place + 1 :])


@pytest.mark.parametrize("missing", ["index.row_offsets", "support", "values", "plan", "cubin"])
def test_an_image_without_a_part_is_refused_and_nothing_is_left(missing: str, driver: Driver) -> None:
    with pytest.raises((InvalidInput, Unavailable), match=r"missing|saved without"):
        NativeOperator(make_image(MATRIX, CSR_PROGRAM, without=[missing]))


@pytest.mark.parametrize("allocations", range(0, 12, 2))
def test_a_device_without_memory_is_an_error_that_leaves_nothing(allocations: int, driver: Driver) -> None:
    program = starting_program("sell", "spmv", "float32")
    image = make_image(MATRIX, program, transposed=program)
    driver.library.stand_in_fail_allocation_after(allocations)
    with pytest.raises(Unavailable, match=r"out of memory|no device memory"):
        NativeOperator(image)
    driver.library.stand_in_fail_allocation_after(-1)


def test_machine_code_that_the_driver_refuses_is_said_in_its_words(driver: Driver) -> None:
    image = make_image(MATRIX, CSR_PROGRAM, changed=lambda sections: sections.update(cubin=b"not machine code"))
    with pytest.raises(Unavailable, match=r"loading the machine code: a PTX JIT compilation failed \(CUDA error 218\)"):
        NativeOperator(image)


def test_threads_without_a_context_share_an_operator(driver: Driver) -> None:
    operator = NativeOperator(make_image(MATRIX, CSR_PROGRAM))
    given = [driver.array(np.full(30, seed, np.float32)) for seed in range(16)]
    results = [driver.array(np.zeros(40, np.float32)) for _ in given]

    def product(pair: Any) -> None:
        operator.apply(pair[0].address, pair[1].address, 0)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(product, zip(given, results, strict=True)))
    for seed, y in enumerate(results):
        np.testing.assert_allclose(y.view, seed * (MATRIX @ np.ones(30)), rtol=1e-5)
    operator.close()
    for array in (*given, *results):
        array.free()


@pytest.mark.parametrize(("starts", "kernels"), [("", 1), (" dependency=programmatic", 2)])
def test_what_packs_new_values_is_never_right_before_a_product_that_starts_early(
    starts: str, kernels: int, driver: Driver
) -> None:
    text = starting_program("sell", "spmv", "float32")
    head, _, body = text.partition("{\n")
    launch = next(line for line in head.split("\n") if line.startswith("//@ launch"))
    wait = '  asm volatile("griddepcontrol.wait;" ::: "memory");\n' if starts else ""
    operator = NativeOperator(make_image(MATRIX, f"{head.replace(launch, launch + starts)}{{\n{wait}{body}"))
    values = driver.array(np.arange(MATRIX.nnz, dtype=np.float32))
    driver.launched.clear()
    operator.update_values(values.address, MATRIX.nnz, 0)
    assert [each.kernel for each in driver.launched] == ["sparsesmith_gather"] * kernels
    found = np.zeros(MATRIX.nnz, np.float32)
    operator.read_values(found)
    np.testing.assert_array_equal(found, values.view)
    operator.close()
    values.free()


def test_a_thread_without_a_context_gives_new_values_and_reads_them(driver: Driver) -> None:
    operator = NativeOperator(make_image(MATRIX, CSR_PROGRAM))
    values = driver.array(np.arange(MATRIX.nnz, dtype=np.float32))
    found = np.zeros(MATRIX.nnz, np.float32)
    for step in (lambda: operator.update_values(values.address, MATRIX.nnz, 0), lambda: operator.read_values(found)):
        with ThreadPoolExecutor(1) as fresh:
            fresh.submit(step).result()
    np.testing.assert_array_equal(found, values.view)
    operator.close()
    values.free()


@pytest.mark.parametrize("name", operation_named("spmv_t").programs)
@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_the_transpose_is_multiplied_with_from_the_one_copy_of_the_matrix(
    name: str, element_type: Any, driver: Driver
) -> None:
    forward = programs_for(operation_named("spmv"), element_type)["plain_csr_scalar"]
    backward = programs_for(operation_named("spmv_t"), element_type)[name]
    alone = NativeOperator(make_image(MATRIX, forward, element_type=element_type))
    image = make_image(MATRIX, forward, transposed=backward, is_shared=True, element_type=element_type)
    operator, kind = NativeOperator(image), dtype_of(element_type)
    extra = operator.info.device_bytes - alone.info.device_bytes
    indices = 4 * (2 * MATRIX.nnz + MATRIX.shape[1] + 1) if name == "plain_csc_scalar" else 0
    assert extra == indices  # Nothing of CSR, no values, and no workspace for scaling.
    x, y = driver.array(np.ones(MATRIX.shape[0], kind)), driver.array(np.ones(MATRIX.shape[1], kind))
    values = np.random.default_rng(3).standard_normal(MATRIX.nnz).astype(kind)
    renewed = MATRIX.copy()
    for given in (MATRIX.data.astype(kind), values):
        renewed.data = given.astype(np.float64)
        new = driver.array(given)
        operator.update_values(new.address, MATRIX.nnz, 0)
        for alpha, beta in ((1, 0), (2, 0), (-1, 0.5)):
            y.view[...] = 3
            operator.apply_transposed(x.address, y.address, 0, alpha, beta)
            np.testing.assert_allclose(y.view, alpha * (renewed.T @ x.view) + beta * 3, rtol=1e-4, atol=1e-5)
        operator.apply(y.address, x.address, 0)
        np.testing.assert_allclose(x.view, renewed @ y.view, rtol=1e-4, atol=1e-5)
        x.view[...] = 1
        free(new)
    free(x, y)
    operator.close()
    alone.close()
