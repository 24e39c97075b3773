"""The kernels that change one entry and account for it, run on the interpreter against SciPy."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from services.evaluator.checking.draws import draw, system_generator
from services.evaluator.device import Draw, largest_error
from services.evaluator.interpreter import Buffer, PtxModule, launch, load_module
from sparsesmith.cuda.nvrtc import Nvrtc, find_library
from sparsesmith.elements import dtype_of
from sparsesmith.formats.format import complete_parameters
from sparsesmith.formats.sell import Sell
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem
from sparsesmith.operations.sums import LONG_ROW, TOLERANCES, error_bound, product, stored_bound, stored_rounding
from sparsesmith_proto.message import ElementType
from tests.evaluator.grading_tools import make_pattern, make_workload

FOLDER = Path(__file__).parents[2] / "services" / "evaluator" / "cuda"
SOURCE = "".join((FOLDER / name).read_text() for name in ("own_kernels.cu", "draw_kernels.cu", "replay_kernels.cu"))
KEY = (0x0123456789ABCDEF, 0xFEDCBA9876543210)
NUM_CHANGES = 12
CASES = [("float32", 0), ("float64", 0), ("float32", 3), ("float16", 0), ("bfloat16", 3)]


@pytest.fixture(scope="module")
def module() -> PtxModule:
    compiled = Nvrtc(find_library()).compile(SOURCE, ["--gpu-architecture=sm_90", "-std=c++17", "-ftz=true"])
    assert compiled.succeeded, compiled.log
    return load_module(compiled.ptx)


def run(module: PtxModule, kernel: str, *arguments: Any) -> None:
    report = launch(module, kernel, 2, 256, arguments)
    assert report.finding is None, report.finding


def buffer(name: str, array: npt.NDArray[Any], *, writable: bool = False) -> Buffer:
    return Buffer(name, array.reshape(-1), writable)


class Replayed:
    """A draw, what changes have made of it, and the values as a format stores them."""

    def __init__(self, module: PtxModule, element_type: ElementType, num_dense_cols: int) -> None:
        """No columns: spmv."""
        self.module = module
        self.pattern: Pattern = make_pattern()
        self.element_type = element_type
        self.columns = max(num_dense_cols, 1)
        workload = make_workload(self.pattern, "spmm" if num_dense_cols else "spmv", element_type, self.columns)
        self.drawn = draw("mixed", Problem(workload, self.pattern), system_generator())
        self.now: Draw = self.drawn.copy()
        self.dense = self.drawn.dense.copy()
        self.layout = Sell().build(self.pattern, complete_parameters(Sell(), {}))
        self.packed = self.layout.pack(self.drawn.values)

    def head(self, number: int, *, of_values: bool) -> tuple[Any, ...]:
        pattern, drawn = self.pattern, self.drawn
        return (
            buffer("row_offsets", pattern.row_offsets), buffer("col_indices", pattern.col_indices),
            buffer("values", drawn.values), buffer("dense", drawn.dense), buffer("magnitude", drawn.magnitude),
            pattern.num_rows, pattern.nnz, self.columns, int(of_values), number, *KEY,
            TOLERANCES[self.element_type], float(LONG_ROW), *stored_rounding(self.element_type),
        )  # fmt: skip

    def change(self, number: int, *, of_values: bool) -> None:
        """In the format's values and the dense operand beside them, in what is accounted for, and in the draw kept."""
        assert self.layout.value_sources is not None
        head, now = self.head(number, of_values=of_values), self.now
        sources = buffer("sources", self.layout.value_sources)
        packed, dense = buffer("packed", self.packed, writable=True), buffer("x", self.dense, writable=True)
        run(self.module, f"change_{self.element_type}", *head, sources, self.packed.size, packed, dense, 0)
        kept = [buffer(name, getattr(now, name), writable=True) for name in ("reference", "magnitude", "bound")]
        vectors = buffer("now_values", now.values), buffer("now_dense", now.dense)
        run(self.module, f"account_{self.element_type}", *head, *vectors, *kept, 0.0)
        vectors = (buffer("v", now.values, writable=True), buffer("d", now.dense, writable=True))
        run(self.module, f"change_{self.element_type}", *head, 0, 0, *vectors, 0)


@pytest.mark.parametrize(("element_type", "num_dense_cols"), CASES)
def test_after_many_changes_the_reference_is_still_that_of_scipy(
    module: PtxModule, element_type: ElementType, num_dense_cols: int
) -> None:
    replayed = Replayed(module, element_type, num_dense_cols)
    for number in range(NUM_CHANGES):
        replayed.change(number, of_values=number % 2 == 0)
    now = replayed.now
    assert np.array_equal(replayed.packed, replayed.layout.pack(now.values))
    assert np.array_equal(replayed.dense, now.dense)
    assert 0 < (now.values != replayed.drawn.values).sum() <= NUM_CHANGES // 2
    assert 0 < (now.dense != replayed.drawn.dense).sum() <= NUM_CHANGES // 2
    expected, scale = product(replayed.pattern, now.values, now.dense)
    assert np.all(abs(now.reference - expected) <= 0.2 * error_bound(replayed.pattern, scale, element_type))
    assert np.allclose(now.magnitude, scale, rtol=1e-9, atol=0)
    right = stored_bound(error_bound(replayed.pattern, scale, element_type), expected, element_type)
    assert np.all(now.bound <= 1.0001 * right)


@pytest.mark.parametrize(("element_type", "num_dense_cols"), CASES)
@pytest.mark.parametrize("of_values", [True, False])
def test_the_result_of_before_is_wrong_after_a_change(
    module: PtxModule, element_type: ElementType, num_dense_cols: int, of_values: bool
) -> None:
    num_shown = 0
    for number in range(NUM_CHANGES):
        replayed = Replayed(module, element_type, num_dense_cols)
        stale = replayed.drawn.reference.astype(dtype_of(element_type))
        assert found(replayed, stale)[0] == 0
        replayed.change(number, of_values=of_values)
        expected, _ = product(replayed.pattern, replayed.now.values, replayed.now.dense)
        assert found(replayed, expected.astype(dtype_of(element_type)))[0] == 0
        is_shown = found(replayed, stale)[0] > 0
        assert is_shown or not is_promised(replayed, number, of_values=of_values), number
        num_shown += is_shown
    # Unseen may be an entry of x whose rows all have something larger in them, and in float16 a value that meets an
    # entry of x which is too small for its type: one in a hundred and one in a thousand.
    is_certain = of_values and element_type != "float16"
    assert num_shown >= (NUM_CHANGES if is_certain else NUM_CHANGES - 3)


def is_promised(replayed: Replayed, number: int, *, of_values: bool) -> bool:
    """Whether the change may become so large that 16 error bounds of its row tell it."""
    pattern, drawn, element_type = replayed.pattern, replayed.drawn, replayed.element_type
    # NumPy's counter is one ahead when it draws: these are the words of `number + 1`, as in the kernel.
    words = np.random.Philox(counter=number, key=KEY[1] << 64 | KEY[0]).random_raw(2)
    extents = pattern.nnz, replayed.columns
    nonzero, dense_column = (int(word) * extent >> 64 for word, extent in zip(words, extents, strict=True))
    row, column = np.searchsorted(pattern.row_offsets, nonzero, "right") - 1, pattern.col_indices[nonzero]
    bounds = stored_bound(error_bound(pattern, drawn.magnitude, element_type), drawn.magnitude, element_type)
    bound = bounds.reshape(-1, replayed.columns)[row, dense_column]
    value = abs(float(drawn.values[nonzero]))
    entry = abs(float(drawn.dense.reshape(-1, replayed.columns)[column, dense_column]))
    changed = drawn.values != replayed.now.values if of_values else drawn.dense != replayed.now.dense
    assert np.flatnonzero(changed).tolist() == [nonzero if of_values else column * replayed.columns + dense_column]
    growth, largest = (1024.0, 2048.0) if element_type == "float16" else (16384.0, 1e30)
    shown = 16 * bound / max(entry if of_values else value, 1e-30)
    return bool(shown <= (largest if of_values else growth * entry))


def found(replayed: Replayed, output: npt.NDArray[Any]) -> tuple[int, int, float]:
    """Wrong entries, the first of them, the largest scaled error, by the kernel."""
    counts, now = np.zeros(3, np.uint64), replayed.now
    arrays = [buffer(name, getattr(now, name)) for name in ("reference", "magnitude", "bound")]
    arguments = buffer("output", output), *arrays, output.size, buffer("found", counts, writable=True)
    run(replayed.module, f"verify_{replayed.element_type}", *arguments)
    return int(counts[0]), int(~counts[1]), float(counts[2:].view(np.float64)[0])


def test_wrong_entries_are_counted_and_the_first_is_named(module: PtxModule) -> None:
    replayed = Replayed(module, "float32", 0)
    output = replayed.drawn.reference.astype(np.float32)
    assert found(replayed, output)[0] == 0
    output[[200, 17]] += 1
    output[3] = np.nan
    num_wrong, first, worst = found(replayed, output)
    assert (num_wrong, first) == (3, 3)
    assert 0 <= worst < 1e-5


def largest_error_there(module: PtxModule, draw: Draw, output: npt.NDArray[np.float64]) -> float:
    worst = np.zeros(1, np.uint64)
    arrays = [buffer(name, getattr(draw, name)) for name in ("reference", "bound", "magnitude")]
    run(module, "largest_error", buffer("output", output), *arrays, output.size, buffer("worst", worst, writable=True))
    return float(worst.view(np.float64)[0])


@pytest.mark.parametrize("spoiled", [None, 2.0, np.nan, np.inf, -np.inf])
def test_the_largest_error_on_the_device_is_that_of_the_host(module: PtxModule, spoiled: float | None) -> None:
    drawn = Replayed(module, "float32", 0).drawn
    output = drawn.reference + 0.5 * drawn.bound
    if spoiled is not None:
        output[-1] = drawn.reference[-1] + spoiled * drawn.bound[-1] if spoiled == 2 else spoiled
    expected = largest_error(output, drawn.reference, drawn.bound, drawn.magnitude)
    assert largest_error_there(module, drawn, output) == pytest.approx(expected, rel=1e-12)
    assert (expected == np.inf) == (spoiled is not None)
