"""What is told of a program that passed: its launches as the interpreter counted them, and what may help."""

from typing import Any

import pytest

from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled, compile_own
from services.evaluator.evaluation import heaviest_kernel
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.cuda.occupancy import multiprocessor, occupancy
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.program import parse_program
from sparsesmith.prompts.feedback import success
from sparsesmith.prompts.suggestions import SUGGESTIONS, Circumstance, suggested
from sparsesmith_proto.evaluation import Profile
from sparsesmith_proto.kernel import EstimatedTiming, Passed, Workload

TILED = """//@ task transpose
//@ launch turn grid=ceil_div(cols,32),ceil_div(rows,32) block=32,8
extern "C" __global__ void turn(int rows, int cols, const float* x, float* y) {
  __shared__ float tile[32][32];
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (col < cols && row + i < rows) tile[threadIdx.y + i][threadIdx.x] = x[(row + i) * (long long)cols + col];
  __syncthreads();
  col = blockIdx.y * 32 + threadIdx.x; row = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (col < rows && row + i < cols) y[(row + i) * (long long)rows + col] = tile[threadIdx.x][threadIdx.y + i];
}
"""


@pytest.fixture(scope="module")
def device() -> InterpreterDevice:
    return InterpreterDevice()


def profiled(device: InterpreterDevice, operation: str, text: str | None = None) -> tuple[str, Circumstance, Profile]:
    computed = operation_named(operation)
    problem = Problem(Workload(operation=operation, element_type="float32", axes=dict(computed.trial)))
    written = text or with_element_type(computed.programs[computed.naive], "float32")
    program = parse_program(written, operation, "float32")
    binary = compile_own(program.source, "sm_90")
    assert isinstance(binary, Compiled)
    workbench = LocalWorkbench(device, problem)
    workbench.build(program)
    assert isinstance(workbench.check("k", program, binary), Correct)
    timing = workbench.time("k")
    workbench.unload("k")
    launches = workbench.profile("k", program, binary)
    assert isinstance(timing, EstimatedTiming)
    return (
        written,
        circumstance(timing, resources=heaviest_kernel(binary)),
        Profile(candidate_id="k", launches=launches),
    )


def circumstance(timing: EstimatedTiming, **changes: Any) -> Circumstance:
    usual = {"storage_format": "task", "format_bytes": 0, "conversion_ms": 0, "worst_error": 0, "num_inputs": 5}
    passed = Passed(timing=timing, **{**usual, **changes})
    return Circumstance(passed, baseline_us=10, floor_us=0.5, floor_bytes=2000, num_sms=132)


@pytest.mark.parametrize(
    ("operation", "text", "expected"),
    [
        ("dot", None, "fewer_atomics"),
        ("transpose", TILED, "avoid_bank_conflicts"),
        ("layer_norm", None, "more_blocks"),
    ],
)
def test_a_symptom_is_told_by_what_was_counted(
    device: InterpreterDevice, operation: str, text: str | None, expected: str
) -> None:
    program, there, profile = profiled(device, operation, text)
    assert expected in [each.name for each in suggested(program, there, profile)]
    for launch in profile.launches:
        assert launch.work is not None
        assert 0 < launch.occupancy <= 1
        assert launch.work.warp_instructions > 0


def test_the_busiest_lines_are_quoted(device: InterpreterDevice) -> None:
    program, there, profile = profiled(device, "transpose", TILED)
    told, made = success(program, there, "suggestions", profile)
    assert "tile[threadIdx.x][threadIdx.y + i]" in told
    assert all(each.advice in told for each in made)
    assert 1 <= len(made) <= 3
    plain, none = success(program, there, "latency", profile)
    assert "bank conflicts" not in plain
    assert none == ()


def test_without_counts_the_compilers_word_is_what_is_told() -> None:
    spilling = {"registers": 255, "spill_bytes": 200, "shared_bytes": 0, "compile_ms": 1}
    there = circumstance(EstimatedTiming(median_us=50, traffic_model="m"), resources=spilling)
    assert suggested("//@ task dot", there, None)[0].name == "no_spills"


def test_suggestions_have_names_of_their_own_and_there_are_about_twenty() -> None:
    names = [each.name for each in SUGGESTIONS]
    assert len(set(names)) == len(names)
    assert 18 <= len(names) <= 26


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "share"),
    [
        (256, 32, 0, 1.0),
        (256, 64, 0, 0.5),
        (1024, 64, 0, 0.5),
        (256, 32, 100 << 10, 0.25),
        (32, 16, 0, 0.5),
        (1024, 255, 0, 0),
    ],
)
def test_occupancy_is_bounded_by_warps_blocks_registers_and_shared_memory(
    threads: int, registers: int, shared_bytes: int, share: float
) -> None:
    assert occupancy("sm_90", threads, registers, shared_bytes) == share


def test_an_architecture_that_is_not_listed_has_the_room_of_the_one_before() -> None:
    assert multiprocessor("sm_103") == multiprocessor("sm_100")
    assert multiprocessor("sm_70") == multiprocessor("sm_80")
