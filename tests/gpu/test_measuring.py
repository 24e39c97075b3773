"""What the evaluator measures on a GPU: repeatable, comparable, and checked."""

from typing import TYPE_CHECKING

import numpy as np
import pytest
import scipy.sparse

from benchmarks.matrices.generated import fem_blocks, stencil_2d
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.device import BuiltMatrix, Draw, Ran
from services.evaluator.measuring.placements import NUM_PLACEMENTS, PLACED_BELOW_US
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Crashed, MeasuredTiming, Mismatch, Rejected, Workload
from tests.gpu import programs
from tests.gpu.programs import compiled, make_pattern, make_workload
from tests.kernels.corpus import corpus

if TYPE_CHECKING:
    from services.evaluator.cuda.device import CudaDevice, CudaWorkload
    from services.evaluator.cuda.kernel import CudaKernel

pytestmark = pytest.mark.gpu


def loaded(text: str, device_workload: "CudaWorkload", pattern: Pattern, workload: Workload) -> "CudaKernel":
    program = parse_program(text, workload.operation, workload.element_type)
    layout = program.format.build(pattern, program.parameters)
    binary = compiled(program)
    assert isinstance(binary, Compiled), binary
    kernel = device_workload.load(program, BuiltMatrix(program.format.name, layout, layout.num_bytes(4), 0.0), binary)
    assert not isinstance(kernel, Rejected | Crashed), kernel
    return kernel


def measured(kernel: "CudaKernel", held: Draw) -> MeasuredTiming:
    timing = kernel.time(held)
    assert isinstance(timing, MeasuredTiming), timing
    return timing


def test_the_copy_bandwidth_is_near_what_the_memory_can_do(device: "CudaDevice") -> None:
    peak_gbs = device.peak_memory_gbs
    assert device.rates.copy_bandwidth_gbs > 50
    if peak_gbs:
        assert 0.6 * peak_gbs < device.rates.copy_bandwidth_gbs < peak_gbs


def test_an_empty_kernel_in_a_graph_costs_about_a_microsecond(device: "CudaDevice") -> None:
    assert 0.1 < device.rates.graph_kernel_us < 3


def test_the_same_program_timed_twice_takes_the_same_time(device: "CudaDevice") -> None:
    pattern = stencil_2d(400, 5)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    held = device_workload.draw("uniform")
    first, second = (measured(loaded(programs.WARP_A_ROW, device_workload, pattern, workload), held) for _ in range(2))
    assert first.stable
    assert second.stable
    assert second.median_us == pytest.approx(first.median_us, rel=0.03)


def test_a_program_against_itself_in_turns_is_a_draw(device: "CudaDevice") -> None:
    pattern = stencil_2d(400, 5)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    held = device_workload.draw("uniform")
    kernels = [loaded(programs.GOOD, device_workload, pattern, workload) for _ in range(2)]
    retimed = device_workload.retime(kernels, held, "cusparse_csr_default")
    one, other = retimed.kernels
    assert isinstance(one, MeasuredTiming)
    assert isinstance(other, MeasuredTiming)
    # Means over addresses drawn for each.
    assert other.median_us == pytest.approx(one.median_us, rel=0.05)
    assert retimed.routine.median_us > 0.3
    assert {len(each.placements_us) for each in (one, other)} == {NUM_PLACEMENTS}
    assert one.is_final
    assert other.is_final


def test_long_kernels_are_timed_at_one_placement(device: "CudaDevice") -> None:
    pattern = stencil_2d(2000, 9)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    kernels = [loaded(programs.GOOD, device_workload, pattern, workload)]
    (kernel,) = device_workload.retime(kernels, device_workload.draw("uniform"), "cusparse_csr_default").kernels
    assert isinstance(kernel, MeasuredTiming)
    assert kernel.median_us > PLACED_BELOW_US
    assert kernel.placements_us == ()


def test_a_program_in_the_finals_gives_the_right_product_where_it_was_last_timed(device: "CudaDevice") -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    timed, other = (device_workload.draw(name) for name in ("uniform", "integers"))
    kernel = loaded(programs.GOOD, device_workload, pattern, workload)
    device_workload.retime([kernel], timed, "cusparse_coo_default")
    ran = kernel.replay(other, timed.right)
    assert isinstance(ran, Ran), ran
    assert bool((abs(ran.outputs["y"] - other.reference) <= other.bound).all())


def test_the_time_of_a_short_kernel_is_the_mean_over_its_placements(device: "CudaDevice") -> None:
    pattern = pattern_from_scipy(
        scipy.sparse.random(2000, 2000, 0.01, format="csr", random_state=np.random.default_rng(31))
    )
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    kernel = loaded(programs.WARP_A_ROW, device_workload, pattern, workload)
    (timing,) = device_workload.retime([kernel], device_workload.draw("uniform"), "cusparse_csr_default").kernels
    assert isinstance(timing, MeasuredTiming)
    assert timing.median_us == pytest.approx(np.mean(timing.placements_us))
    assert timing.low_us < timing.median_us < timing.high_us
    # Random columns: which slices of the L2 serve x and the matrix differs from one placement to the next.
    assert max(timing.placements_us) > 1.01 * min(timing.placements_us)


def test_a_matrix_in_the_l2_is_slower_when_cold(device: "CudaDevice") -> None:
    pattern = stencil_2d(500, 9)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    timing = measured(loaded(programs.GOOD, device_workload, pattern, workload), device_workload.draw("uniform"))
    assert timing.cold_us > 1.1 * timing.median_us


def test_a_program_that_does_nothing_is_below_the_byte_floor(device: "CudaDevice") -> None:
    pattern = stencil_2d(2000, 9)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    nothing = programs.GOOD.replace("if (row >= num_rows) return;", "if (num_rows > 0) return;")
    timing = loaded(nothing, device_workload, pattern, workload).time(device_workload.draw("uniform"))
    assert not isinstance(timing, MeasuredTiming)
    assert "is below" in timing.message


def test_a_program_that_works_only_when_its_output_was_lost_is_suspicious(device: "CudaDevice") -> None:
    pattern = stencil_2d(1000, 9)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    # Skips a row whose output is there already: right after NaN, and very fast when repeated.
    lazy = programs.GOOD.replace("float sum = 0;", "if (y[row] == y[row]) return; float sum = 0;")
    timing = loaded(lazy, device_workload, pattern, workload).time(device_workload.draw("uniform"))
    assert not isinstance(timing, MeasuredTiming)
    assert "does not do the whole work every time" in timing.message or "is below" in timing.message


def test_a_time_that_nobody_is_paid_for_is_taken_without_replays_and_any_other_is_not(device: "CudaDevice") -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    held = device_workload.draw("mixed")
    (cheat,) = (each for each in corpus("cheating") if each.path.stem == "work_skipped_every_second_launch")
    kernel = loaded(cheat.text, device_workload, pattern, workload)
    assert isinstance(kernel.time(held), Mismatch)
    timing = kernel.time(held, 0.0)
    assert isinstance(timing, MeasuredTiming)
    assert isinstance(kernel.time(held, timing.median_us * 2), Mismatch)


def test_a_replay_gives_the_result_of_the_new_input(device: "CudaDevice") -> None:
    pattern = make_pattern()
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    timed, other = (device_workload.draw(name) for name in ("uniform", "integers"))
    kernel = loaded(programs.SELL_16_BIT, device_workload, pattern, workload)
    measured(kernel, timed)
    ran = kernel.replay(other, timed.right)
    assert isinstance(ran, Ran), ran
    assert bool((abs(ran.outputs["y"] - other.reference) <= other.bound).all())
    assert ran.guards_intact
    assert ran.inputs_intact


def test_references_are_hidden_while_a_program_runs(device: "CudaDevice") -> None:
    from services.evaluator.cuda.draws import DeviceDraws
    from services.evaluator.cuda.residents import HeldDraws

    pattern = make_pattern()
    workload = make_workload(pattern)
    draws = HeldDraws(device.kernels)
    held = DeviceDraws(Problem(workload, pattern), device.kernels, draws).draw("uniform")
    before = held.reference.get(stream=device.stream)
    with draws.hidden():
        hidden = held.reference.get(stream=device.stream)
    shown = held.reference.get(stream=device.stream)
    assert (hidden == before).mean() < 0.01
    assert np.array_equal(shown, before)


def test_every_routine_of_the_library_is_checked_and_timed(device: "CudaDevice") -> None:
    pattern = fem_blocks(40, 3)
    workload = make_workload(pattern)
    baselines = device.open(Problem(workload, pattern)).baselines()
    names = {routine.routine for routine in baselines.routines}
    assert {
        "cusparse_csr_default", "cusparse_csr_alg1", "cusparse_csr_alg2", "cusparse_coo_default", "cusparse_coo_alg1",
        "cusparse_coo_alg2", "cusparse_sell_alg1",
    } <= names  # fmt: skip
    assert any(name.startswith("cusparse_bsr3") for name in names)
    for routine in baselines.routines:
        assert 0.3 < routine.timing.median_us < 1000


@pytest.mark.parametrize("element_type", ["float32", "float64"])
def test_spmm_routines_work_on_row_major_operands(element_type: str, device: "CudaDevice") -> None:
    pattern = make_pattern()
    workload = make_workload(pattern, operation="spmm", element_type=element_type, num_dense_cols=32)
    names = {routine.routine for routine in device.open(Problem(workload, pattern)).baselines().routines}
    assert {"cusparse_csr_default", "cusparse_csr_alg2", "cusparse_csr_alg3", "cusparse_coo_alg4"} <= names


def test_a_write_into_a_guard_or_an_input_is_named(device: "CudaDevice") -> None:
    from cupy.cuda import runtime

    from services.evaluator.cuda.arena import BufferPlan, random_placement
    from services.evaluator.cuda.memory import Arena

    plans = [BufferPlan("values", 1001, writable=False), BufferPlan("y", 400, writable=True)]
    arena = Arena(plans, device.kernels)
    for name, offset, label in (("values", 500, "values"), ("y", 400, "behind y"), ("y", -1, "between values and y")):
        arena.place(random_placement())
        arena.seal()
        device.stream.synchronize()
        runtime.memset(arena.address("y"), 1, 400)
        runtime.deviceSynchronize()
        arena.look()
        assert arena.changed() == ()
        runtime.memset(arena.address(name) + offset, 1, 1)
        runtime.deviceSynchronize()
        arena.look()
        assert [segment.label for segment in arena.changed()] == [label]


KEPT = '"ld.global.nc.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(a) : "l"(values + j), "l"(keep)'


def test_lines_that_a_program_asks_the_l2_to_keep_do_not_make_it_faster_when_cold(device: "CudaDevice") -> None:
    pattern = stencil_2d(700, 9)
    workload = make_workload(pattern)
    device_workload = device.open(Problem(workload, pattern))
    held = device_workload.draw("uniform")
    plain = programs.GOOD
    keeping = plain.replace(
        "float sum = 0;",
        "float sum = 0;\n  unsigned long long keep;\n"
        '  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(keep));',
    ).replace(
        "sum += values[j] * x[col_indices[j]];",
        f"{{ float a; asm volatile({KEPT}); sum += a * x[col_indices[j]]; }}",
    )
    assert KEPT in keeping
    # One kernel before and after, so that its buffers lie at the same addresses.
    kernel = loaded(plain, device_workload, pattern, workload)
    before = measured(kernel, held)
    kept = measured(loaded(keeping, device_workload, pattern, workload), held)
    after = measured(kernel, held)
    assert kept.cold_us > 0.9 * before.cold_us
    assert after.median_us == pytest.approx(before.median_us, rel=0.03, abs=0.1)
    assert after.cold_us == pytest.approx(before.cold_us, rel=0.1)
