"""compute-sanitizer itself on a GPU, where it is installed and takes the GPU: clean programs, one that writes out of
bounds, one that races in shared memory, one that reads what nobody wrote."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from services.evaluator.checking.draws import draw, system_generator
from services.evaluator.compiling.compiler import Compiled
from services.evaluator.isolation.built_formats import BuiltMatrices
from services.evaluator.sanitizing.launch_plan import write_plan
from services.evaluator.sanitizing.sanitizer import TOOLS, Found, Sanitizer
from sparsesmith.cuda.sanitizer import find_sanitizer
from sparsesmith.operations import Problem
from sparsesmith.program.binding import bind
from sparsesmith.program.program import KernelProgram
from sparsesmith_proto.kernel import ToolCheck
from tests.evaluator.grading_tools import make_candidate
from tests.gpu import programs
from tests.gpu.programs import CSR_ARGUMENTS, compiled, csr_program, make_pattern, make_workload

pytestmark = pytest.mark.gpu

PATIENT_S = 60.0
"""So that what is tried is the tool, not how fast it is."""

OUT_OF_BOUNDS = csr_program("y[row] = sum;\n  if (row == 0) y[num_rows + 1000] = sum;")
RACE = f"""//@ format csr
//@ launch spmv grid=ceil_div(num_rows,128) block=128
extern "C" __global__ void spmv({CSR_ARGUMENTS.replace("T*", "float*")}) {{
  __shared__ float sums[128];
  int row = blockIdx.x * 128 + threadIdx.x;
  float sum = 0;
  if (row < num_rows)
    for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  sums[threadIdx.x] = sum;
  float other = sums[(threadIdx.x + 64) % 128];
  if (row < num_rows) y[row] = other;
}}
"""
UNSET = csr_program("y[row] += sum;")


ALLOCATES = """
import ctypes, sys
cuda, context, place = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
calls = [
    lambda: cuda.cuInit(0),
    lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
    lambda: cuda.cuCtxSetCurrent(context),
    lambda: cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(1024)),
]
sys.exit(max(call() for call in calls))
"""
"""The least that a program does with a GPU; nothing of ours."""


def refusal(command: Path) -> str:
    """Why the tool does not work on this machine, in its own words; empty where it does."""
    python = [sys.executable, "-I", "-S", "-c", ALLOCATES]
    assert subprocess.run(python, check=False, timeout=PATIENT_S).returncode == 0, "the GPU itself does not work"
    tried = subprocess.run(
        [command, "--error-exitcode", "99", *python], capture_output=True, check=False, text=True, timeout=PATIENT_S
    )
    words = " ".join((tried.stdout + tried.stderr).split())
    return "" if tried.returncode == 0 else f"it ended with {tried.returncode}: {words[-400:]}"


@pytest.fixture(scope="module")
def sanitizer(gpu: None) -> Sanitizer:
    """Where the tool cannot watch so much as an allocation (virtual machines without debugging), nothing of ours is
    told by it; where it can, what it does not check is our fault."""
    command = find_sanitizer()
    if command is None:
        pytest.skip("compute-sanitizer is not installed")
    reason = refusal(command)
    if reason:
        pytest.skip(f"compute-sanitizer does not work on this machine: {reason}")
    return Sanitizer(command, PATIENT_S)


def plan_of(text: str) -> Callable[[Path], None]:
    from services.evaluator.candidates import parse_candidate

    pattern = make_pattern(600, 500)
    workload = make_workload(pattern)
    problem = Problem(workload, pattern)
    program = parse_candidate(make_candidate(text), workload).program
    assert isinstance(program, KernelProgram), program
    binary = compiled(program)
    assert isinstance(binary, Compiled), binary
    layout = BuiltMatrices(problem).get(program).layout
    drawn = draw("mixed", problem, system_generator())
    return lambda folder: write_plan(folder, bind(program, layout, problem, 132), binary.cubin, layout, drawn)


def line_of(text: str, part: str) -> int:
    """As messages count: the line of the program that holds a part."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.mark.parametrize("text", [programs.GOOD, programs.WARP_A_ROW, programs.COO_TWO_LAUNCHES, programs.LARGE_SHARED])
def test_a_good_program_is_clean_by_every_tool(text: str, sanitizer: Sanitizer) -> None:
    assert sanitizer.look(plan_of(text)) == tuple(ToolCheck(tool=tool, state="clean") for tool in TOOLS)


@pytest.mark.parametrize(
    ("text", "tool", "kind", "part"),
    [
        (OUT_OF_BOUNDS, "memcheck", "Invalid __global__ write", "num_rows + 1000"),
        (RACE, "racecheck", "Race reported between", "sums[threadIdx.x] = sum"),
        (UNSET, "initcheck", "Uninitialized __global__ memory read", "y[row] += sum"),
    ],
    ids=["out of bounds", "race", "unset"],
)
def test_a_program_with_an_error_is_named_with_its_tool_kind_and_line(
    text: str, tool: str, kind: str, part: str, sanitizer: Sanitizer
) -> None:
    found = sanitizer.look(plan_of(text))
    assert isinstance(found, Found), found
    assert found.tool == tool
    assert kind in found.fault.kind
    assert line_of(text, part) in found.fault.lines


def test_three_tools_end_within_the_limit_of_a_winner(sanitizer: Sanitizer) -> None:
    """What the setting's default promises on a small matrix; where this fails, winners are told as not checked."""
    said = Sanitizer(sanitizer._command, 2.0).look(plan_of(programs.GOOD))
    assert not isinstance(said, Found)
    assert {check.state for check in said} == {"clean"}
