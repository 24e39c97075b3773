"""The kernels that draw inputs and compute references on a GPU, run on the interpreter against NumPy and SciPy."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse

from services.evaluator.checking.draws import MIXED, WIDE_DECADES, WIDE_RANGE, mixing_of
from services.evaluator.cuda.changes import accuracy
from services.evaluator.interpreter import Buffer, PtxModule, launch, load_module
from sparsesmith.cuda.nvrtc import Nvrtc, find_library
from sparsesmith.elements import ALL_TYPES, WIDE_TYPES, dtype_of
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations.sums import (
    ROUNDOFF,
    SINGLE_ROUNDOFFS,
    error_bound,
    limit_to_single_products,
    product,
    stored_bound,
)
from sparsesmith_proto.message import ElementType
from tests.evaluator.grading_tools import make_pattern

EVALUATOR = Path(__file__).parents[2] / "services" / "evaluator" / "cuda"
SOURCE = "".join((EVALUATOR / name).read_text() for name in ("own_kernels.cu", "draw_kernels.cu", "replay_kernels.cu"))
KEY = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
STREAM = 3
ELEMENT_TYPES: tuple[ElementType, ...] = ALL_TYPES
SHORT_TYPES: tuple[ElementType, ...] = ("float16", "bfloat16")


@pytest.fixture(scope="module")
def ptx() -> str:
    """With the options of CuPy, which flushes subnormal numbers to zero."""
    compiled = Nvrtc(find_library()).compile(SOURCE, ["--gpu-architecture=compute_90", "-std=c++17", "-ftz=true"])
    assert compiled.succeeded, compiled.log
    return compiled.ptx


@pytest.fixture(scope="module")
def module(ptx: str) -> PtxModule:
    return load_module(ptx)


def run(module: PtxModule, kernel: str, blocks: int, *arguments: Any, check_races: bool = True) -> None:
    report = launch(module, kernel, blocks, 256, arguments, check_races=check_races)
    assert report.finding is None, report.finding


def output(name: str, array: npt.NDArray[Any]) -> Buffer:
    return Buffer(name, array, writable=True)


def constant(name: str, array: npt.NDArray[Any]) -> Buffer:
    return Buffer(name, np.ascontiguousarray(array).reshape(-1), writable=False)


def filled(module: PtxModule, kind: str, length: int, element_type: ElementType) -> npt.NDArray[Any]:
    numbers = np.full(length, np.nan, dtype_of(element_type))
    run(module, f"fill_{kind}_{element_type}", 2, output("numbers", numbers), length, STREAM, *KEY)
    return numbers


def random_words(count: int) -> npt.NDArray[np.uint64]:
    """Of NumPy's Philox under the same key and counter."""
    generator = np.random.Philox(key=KEY[1] << 64 | KEY[0], counter=STREAM << 64)
    return np.asarray(generator.random_raw(count), np.uint64)


def units(count: int) -> npt.NDArray[np.float64]:
    numbers: npt.NDArray[np.float64] = (random_words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


@pytest.mark.parametrize("element_type", ELEMENT_TYPES)
def test_uniform_numbers_are_those_of_philox(module: PtxModule, element_type: ElementType) -> None:
    expected = (2 * units(3001) - 1).astype(np.float32 if element_type == "bfloat16" else np.float64)
    assert np.array_equal(filled(module, "uniform", 3001, element_type), expected.astype(dtype_of(element_type)))


@pytest.mark.parametrize("element_type", ELEMENT_TYPES)
def test_neighbours_of_a_cancelling_draw_differ_in_sign_alone(module: PtxModule, element_type: ElementType) -> None:
    numbers = filled(module, "cancelling", 2001, element_type)
    assert np.array_equal(numbers[1::2], -numbers[:2000:2])
    assert numbers[::2].min() >= 0.5
    assert numbers[::2].max() <= 1
    near = filled(module, "near_one", 2001, element_type).astype(np.float64)
    assert abs(near - 1).max() <= 1.001e-3 + ROUNDOFF[element_type]
    assert abs(near - 1).max() > 0.9e-3 or element_type == "bfloat16"


@pytest.mark.parametrize("element_type", ELEMENT_TYPES)
def test_a_wide_range_has_both_signs_and_is_even_in_the_logarithm(module: PtxModule, element_type: ElementType) -> None:
    numbers = filled(module, "wide_range", 4000, element_type).astype(np.float64)
    exponents = np.log10(abs(numbers))
    decades = WIDE_DECADES[element_type]
    assert np.allclose(exponents, 2 * decades * units(4000) - decades, atol=max(1e-6, ROUNDOFF[element_type]))
    assert 0.45 < (numbers < 0).mean() < 0.55


@pytest.mark.parametrize("element_type", ELEMENT_TYPES)
def test_integers_are_one_two_and_three(module: PtxModule, element_type: ElementType) -> None:
    numbers, counts = np.unique(filled(module, "integers", 3000, element_type), return_counts=True)
    assert list(numbers) == [1, 2, 3]
    assert counts.min() > 900


def test_another_key_or_stream_gives_other_numbers(module: PtxModule) -> None:
    def drawn(stream: int, key: tuple[int, int]) -> npt.NDArray[Any]:
        numbers = np.empty(64)
        run(module, "fill_uniform_float64", 1, output("numbers", numbers), 64, stream, *key)
        return numbers

    first = drawn(0, KEY)
    assert np.array_equal(first, drawn(0, KEY))
    for other in (drawn(1, KEY), drawn(0, (KEY[0] + 1, KEY[1])), drawn(0, (KEY[0], KEY[1] + 1))):
        assert not np.any(first == other)


@pytest.mark.parametrize("num_dense_cols", [1, 5])
def test_each_dense_column_picks_out_one_column_that_has_a_nonzero(module: PtxModule, num_dense_cols: int) -> None:
    pattern = make_pattern()
    dense = np.zeros(pattern.num_cols * num_dense_cols, np.float32)
    arguments = constant("col_indices", pattern.col_indices), pattern.nnz, num_dense_cols, STREAM, *KEY
    run(module, "pick_float32", 1, output("dense", dense), *arguments)
    rows, columns = np.nonzero(dense.reshape(-1, num_dense_cols))
    assert sorted(columns) == list(range(num_dense_cols))
    assert np.isin(rows, pattern.col_indices).all()
    assert dense[dense != 0].min() >= 1


def long_row_pattern() -> Pattern:
    """Rows of 0, 1 and 5,000 nonzeros among others."""
    lengths = np.array([0, 1, 5000, 33, 32, 0, 7])
    columns = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Pattern(lengths.size, 5000, offsets, columns)


def refer(
    module: PtxModule, pattern: Pattern, values: npt.NDArray[Any], dense: npt.NDArray[Any], element_type: ElementType
) -> list[npt.NDArray[np.float64]]:
    """Reference, magnitude and bound, each of the shape of the product."""
    num_dense_cols = dense.shape[1] if dense.ndim == 2 else 1
    reference, magnitude, bound = (np.full(pattern.num_rows * num_dense_cols, np.nan) for _ in range(3))
    run(
        module, f"refer_{element_type}", 2,
        constant("row_offsets", pattern.row_offsets), constant("col_indices", pattern.col_indices),
        constant("values", values), constant("dense", dense),
        output("reference", reference), output("magnitude", magnitude), output("bound", bound),
        pattern.num_rows, num_dense_cols, min(32, 1 << (num_dense_cols - 1).bit_length()),
        *(each.value for each in accuracy(element_type, sees_single_products=True)),
    )  # fmt: skip
    return [array.reshape((pattern.num_rows, *dense.shape[1:])) for array in (reference, magnitude, bound)]


@pytest.mark.parametrize("element_type", ELEMENT_TYPES)
@pytest.mark.parametrize("num_dense_cols", [1, 2, 5, 32, 40])
def test_the_reference_and_its_bound_are_those_of_scipy(
    module: PtxModule, element_type: ElementType, num_dense_cols: int
) -> None:
    pattern = long_row_pattern()
    generator = np.random.default_rng(4)
    values = generator.uniform(-1, 1, pattern.nnz).astype(dtype_of(element_type))
    shape = (pattern.num_cols,) if num_dense_cols == 1 else (pattern.num_cols, num_dense_cols)
    dense = generator.uniform(-1, 1, shape).astype(dtype_of(element_type))
    reference, magnitude, bound = refer(module, pattern, values, dense, element_type)
    expected, scale = product(pattern, values, dense)
    assert np.all(abs(reference - expected) <= 1e-14 * scale)
    assert np.allclose(magnitude, scale, rtol=1e-13, atol=0)
    accepted = stored_bound(error_bound(pattern, scale, element_type), expected, element_type)
    limit_to_single_products(accepted, scale, pattern, values, dense, element_type)
    assert np.allclose(bound, accepted, rtol=1e-11, atol=0)
    if element_type in WIDE_TYPES:
        assert bound[1] == pytest.approx(SINGLE_ROUNDOFFS * ROUNDOFF[element_type] * scale[1])


@pytest.mark.parametrize("element_type", ELEMENT_TYPES)
@pytest.mark.parametrize("num_dense_cols", [1, 3])
@pytest.mark.parametrize("name", [MIXED, WIDE_RANGE])
def test_a_mixed_draw_has_rows_of_four_kinds_and_columns_of_five_sizes(
    module: PtxModule, element_type: ElementType, num_dense_cols: int, name: str
) -> None:
    mixing = mixing_of(name, element_type)
    if mixing is None:
        assert (name, element_type) == (WIDE_RANGE, "float16")
        return
    pattern = pattern_from_scipy(scipy.sparse.random(400, 200, 0.1, random_state=np.random.default_rng(2)))
    values = np.ones(pattern.nnz, dtype_of(element_type))
    dense = np.ones(200 * num_dense_cols, dtype_of(element_type))
    dense.reshape(200, num_dense_cols)[::2] = -1
    tiny, smallest, largest = mixing.tiny, mixing.smallest, mixing.largest
    sizes_of = (STREAM, *KEY, smallest, largest)
    run(module, f"mix_columns_{element_type}", 1, output("dense", dense), 200, num_dense_cols, *sizes_of)
    run(
        module, f"mix_rows_{element_type}", 1, constant("row_offsets", pattern.row_offsets),
        constant("col_indices", pattern.col_indices), output("values", values), constant("dense", dense),
        pattern.num_rows, num_dense_cols, *sizes_of, tiny,
        check_races=element_type in WIDE_TYPES,  # Two numbers of 16 bits are one word to the interpreter.
    )  # fmt: skip
    met = dense.reshape(200, num_dense_cols)[:, 0].astype(np.float64)
    sizes = abs(met)
    assert set(sizes) == set(mixing.columns)
    assert 80 < (sizes == 1).sum() < 140
    kinds = Counter(
        kind_of_row(values[entries].astype(np.float64), met[pattern.col_indices[entries]], smallest, tiny)
        for entries in map(slice, pattern.row_offsets[:-1], pattern.row_offsets[1:])
        if entries.stop > entries.start
    )
    assert 60 < kinds["even"] < 140
    assert 150 < kinds["plain"] < 250
    if largest > 1:
        assert 25 < kinds["single"] < 75
        assert 25 < kinds["outweighing"] < 85
    else:
        assert 60 < kinds["single"] < 140
    assert kinds.total() == sum(kinds[kind] for kind in ("even", "plain", "single", "outweighing"))


def kind_of_row(values: npt.NDArray[Any], met: npt.NDArray[Any], smallest: float, tiny: float) -> str:
    """Of a row whose values were ones, and x as large as its columns."""
    products = values * met
    if np.allclose(products, smallest, rtol=1e-6, atol=0):
        return "even"
    largest = np.maximum(abs(met), 1)
    if np.array_equal(values * largest, np.ones(values.size)):
        return "plain"
    light = np.sort(values * largest)[:-1]
    if np.array_equal(light, np.full(light.size, tiny)):
        return "single"
    return "outweighing" if np.sum(values == tiny) == values.size - 1 else "unknown"


def test_no_reference_takes_a_subnormal_value_for_zero(ptx: str) -> None:
    """Read from the PTX: the interpreter does not model flushing."""
    conversions = re.findall(r"cvt\S*\.f64\.f32", ptx[ptx.index(".entry refer_float32") :])
    assert conversions
    assert set(conversions) == {"cvt.f64.f32"}


def test_no_number_is_taken_for_zero_where_its_type_changes(ptx: str) -> None:
    """Of bfloat16, too: what is subnormal in it is so in float32, which it is rounded by."""
    conversions = re.findall(r"cvt\S*f\d\d\S*", ptx)
    assert "cvt.rn.f32.f64" in conversions and "cvt.f64.f32" in conversions
    assert not [each for each in conversions if ".ftz" in each]


def test_a_result_is_widened_without_rounding_subnormal_numbers_included(ptx: str, module: PtxModule) -> None:
    """Read from the PTX, too: the interpreter does not model flushing."""
    numbers = np.array([1e-41, -1e-41, 1e-45, 2.0**-126, -0.0, 0.1, 3e38, np.inf, -np.inf, np.nan], np.float32)
    wide = np.full(numbers.size, 7.0)
    run(module, "widen_float32", 1, constant("numbers", numbers), output("wide", wide), numbers.size)
    np.testing.assert_array_equal(wide, numbers.astype(np.float64))
    for kernel in ("widen_float32", "narrow_float32", "widen_bfloat16", "narrow_bfloat16"):
        assert ".ftz" not in ptx[ptx.index(f".entry {kernel}") :].split(".entry", 2)[1]
    back = np.zeros_like(numbers)
    run(module, "narrow_float32", 1, constant("wide", wide), output("numbers", back), wide.size)
    np.testing.assert_array_equal(back, numbers)


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_every_number_of_16_bits_is_widened_as_it_is_and_narrowed_back(
    module: PtxModule, element_type: ElementType
) -> None:
    numbers = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype_of(element_type))
    wide, back = np.full(numbers.size, 7.0), np.zeros_like(numbers)
    run(module, f"widen_{element_type}", 2, constant("numbers", numbers), output("wide", wide), numbers.size)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(wide, numbers.astype(np.float64))
    run(module, f"narrow_{element_type}", 2, constant("wide", wide), output("numbers", back), wide.size)
    is_number = ~np.isnan(wide)
    assert np.array_equal(back.view(np.uint16)[is_number], numbers.view(np.uint16)[is_number])
    assert np.isnan(back.astype(np.float64)[~is_number]).all()


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_numbers_between_two_of_16_bits_are_rounded_to_the_nearest(
    module: PtxModule, element_type: ElementType
) -> None:
    wide = np.random.default_rng(3).uniform(-300, 300, 3000)
    found = np.zeros(wide.size, dtype_of(element_type))
    run(module, f"narrow_{element_type}", 2, constant("wide", wide), output("numbers", found), wide.size)
    assert np.all(abs(found.astype(np.float64) - wide) <= 1.0001 * ROUNDOFF[element_type] * abs(wide))
    run(module, f"scale_{element_type}", 2, output("numbers", found), found.size, 0.25)
    assert np.all(abs(4 * found.astype(np.float64) - wide) <= 1.0001 * ROUNDOFF[element_type] * abs(wide))


@pytest.mark.parametrize("element_type", SHORT_TYPES)
def test_values_of_16_bits_are_packed_and_refreshed(module: PtxModule, element_type: ElementType) -> None:
    values = np.arange(1, 6).astype(dtype_of(element_type))
    packed = np.full(7, np.nan, values.dtype)
    sources = np.array([4, -1, 0, 1, 2, 3, -1], np.int32)
    arguments = constant("sources", sources), constant("values", values), output("packed", packed), packed.size
    run(module, f"pack_{element_type}", 1, *arguments)
    assert packed.astype(int).tolist() == [5, 0, 1, 2, 3, 4, 0]
    x = np.full(999, np.nan, values.dtype)
    run(module, f"refresh_{element_type}", 1, output("x", x), x.size, 12)
    assert x.astype(np.float64).min() < -0.9
    assert x.astype(np.float64).max() > 0.9


def test_flushing_rewrites_the_whole_buffer(module: PtxModule) -> None:
    memory = np.zeros(4 * 1000, np.float32)
    run(module, "flush", 2, output("buffer", memory), 1000)
    run(module, "give_way", 2, output("buffer", memory), memory.nbytes // 128)
    assert np.array_equal(memory.reshape(-1, 4), np.tile(np.array([1, 0, 0, 0], np.float32), (1000, 1)))
