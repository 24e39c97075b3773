"""Files of a task's answer: headers compiled by nvcc and run on the CUDA runtime of `host_cuda.cpp`, loaders run."""

import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sparsesmith.artifacts import artifact, artifact_name, kinds_of
from sparsesmith.artifacts.cpp_header import workload_name
from sparsesmith.artifacts.task_header import task_header
from sparsesmith.artifacts.task_launcher import named_inputs
from sparsesmith.errors import Conflict, InvalidInput, Unavailable
from sparsesmith.formats.format import EMPTY_LAYOUT
from sparsesmith.operations import Problem
from sparsesmith.program.binding import BoundProgram, bind
from sparsesmith.program.program import parse_program
from sparsesmith_proto.api import BreakEven, KernelReport, LibraryAnswer, SearchReport, TunedAnswer
from sparsesmith_proto.kernel import Baselines, BaselineTiming
from tests.artifacts.answers import make_device, make_evaluation, make_timing
from tests.operations.checked import filled, make_problem

PROGRAMS = {
    "dot": "naive",
    "histogram": "naive",
    "layer_norm": "naive",
    "max_pool3d": "naive",
    "prefix_sum": "naive",
    "reverse": "naive",
    "softmax": "naive",
    "top_k": "naive",
}
"""Inputs of two types, results of one number, whole numbers, changes in place, sizes that follow from axes."""

OWN_SCRATCH = """//@ task sum
//@ scratch partial = 4 float
//@ scratch places = n int
//@ launch first grid=2 block=32 shared=65536 dependency=programmatic
//@ launch second grid=1 block=32
#define WIDTH 2
extern "C" __global__ void first(int n, const float* x, float* total, float* partial, int* places) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  partial[0] = WIDTH;
}
extern "C" __global__ void second(int n, const float* x, float* total, float* partial, int* places) {
  total[0] = partial[0];
}
"""
KINDS = {"int": "i", "int*": "I", "float*": "F"}

MAIN = """
#include <cstdio>
#include <cstdlib>
extern std::string argument_kinds;
int num_allocated();
int in_another_unit();
template <typename Word>
Word* array(std::size_t count, int first) {
  void* pointer;
  cudaMalloc(&pointer, count * sizeof(Word));
  static_cast<Word*>(pointer)[0] = Word(first);
  return static_cast<Word*>(pointer);
}
int main(int, char** arguments) {
  argument_kinds = arguments[2];
  switch (std::atoi(arguments[1])) {
CASES  }
  std::printf("left %d\\n", num_allocated() + in_another_unit());
}
"""


@dataclass(frozen=True)
class Built:
    """A task's program at its trial axes."""

    number: int
    problem: Problem
    text: str

    @property
    def namespace(self) -> str:
        return f"sparsesmith_{workload_name(self.problem.workload)}"

    @property
    def plan(self) -> BoundProgram:
        workload = self.problem.workload
        program = parse_program(self.text, workload.operation, workload.element_type)
        return bind(program, EMPTY_LAYOUT, self.problem, make_device().num_sms)

    def case(self) -> str:
        """Calls the kernel with arrays whose first entries tell them apart, and frees them."""
        arrays = {operand.name: operand for operand in self.problem.arrays}
        made = [
            f"{'float' if each.dtype == 'T' else 'int'}* {name} = "
            f"array<{'float' if each.dtype == 'T' else 'int'}>({each.num_elements(self.problem.sizes)}, {place + 3});"
            for place, (name, each) in enumerate(arrays.items())
        ]
        freed = [f"cudaFree({name});" for name in arrays]
        call = f"{self.namespace}::Kernel kernel; kernel({', '.join(arrays)});"
        return f"    case {self.number}: {{ {' '.join((*made, call, *freed))} }} break;\n"

    def arguments(self) -> Iterator[npt.NDArray[Any]]:
        sizes, plan = self.problem.sizes, self.plan
        names = [operand.name for operand in self.problem.arrays]
        operands = {operand.name: operand for operand in self.problem.arrays}
        for argument in plan.arguments:
            if argument.role == "size":
                yield np.array([sizes[argument.name]])
            elif argument.role == "scratch":
                type_ = np.dtype(argument.c_type.replace("float*", "float32").replace("int*", "int32"))
                yield np.zeros(plan.own_scratch[argument.name] // type_.itemsize, type_)
            else:
                operand = operands[argument.name]
                array = np.zeros(operand.num_elements(sizes), operand.array_type("float32"))
                array[0] = names.index(argument.name) + 3
                yield array


def build(number: int, task: str, text: str = "") -> Built:
    problem = make_problem(task)
    return Built(number, problem, text or filled(problem, problem.operation.programs[PROGRAMS[task]]))


BUILT = {name: build(number, name) for number, name in enumerate(PROGRAMS)}
BUILT["sum"] = build(len(PROGRAMS), "sum", OWN_SCRATCH)


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All headers, included by two translation units of one program."""
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed")
    folder = tmp_path_factory.mktemp("tasks")
    includes = cases = uses = ""
    for built in BUILT.values():
        header = task_header(built.text, built.problem.workload, make_device())
        (folder / f"{built.namespace}.hpp").write_text(header)
        includes += f'#include "{built.namespace}.hpp"\n'
        uses += f"  sum += sizeof({built.namespace}::Kernel) == 0;\n"
        cases += built.case()
    (folder / "main.cu").write_text(includes + MAIN.replace("CASES", cases))
    (folder / "other.cu").write_text(f"{includes}int in_another_unit() {{\n  int sum = 0;\n{uses}  return sum;\n}}\n")
    command = ["nvcc", "-std=c++17", "-arch=sm_90", "-cudart", "none", "-Xcompiler", "-Wall", "-t", "2"]
    sources = [folder / "main.cu", folder / "other.cu", Path(__file__).with_name("host_cuda.cpp")]
    run = subprocess.run([*command, "-o", folder / "program", *sources], capture_output=True, text=True, cwd=folder)
    assert run.returncode == 0, run.stderr
    assert "warning" not in run.stderr, run.stderr
    return folder / "program"


@pytest.mark.parametrize("name", BUILT)
def test_a_task_header_launches_its_program_with_the_arrays_of_the_call(name: str, executable: Path) -> None:
    built = BUILT[name]
    kinds = "".join(KINDS[argument.c_type.removeprefix("const ")] for argument in built.plan.arguments)
    command = [str(executable), str(built.number), kinds]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = iter([line for line in done.stdout.splitlines() if not line.startswith("shared ")])
    for launch in built.plan.launches:
        _, kernel, *configuration = next(lines).split()
        assert launch.kernel in kernel
        assert list(map(int, configuration)) == [*launch.grid, *launch.block, launch.shared_bytes]
        for argument, expected in zip(built.plan.arguments, built.arguments(), strict=True):
            given = np.array(next(lines).split(), expected.dtype)
            np.testing.assert_array_equal(given, expected, err_msg=argument.name)
    assert list(lines) == ["left 0"], "device memory was not given back"


def test_macros_of_a_task_do_not_reach_whoever_includes_its_header() -> None:
    assert "#undef WIDTH\n" in task_header(OWN_SCRATCH, BUILT["sum"].problem.workload, make_device())


def report_of(problem: Problem, program: str | None) -> KernelReport:
    """With None: the naive program is the answer."""
    break_even = BreakEven(
        kind="measured", conversion_ms=0, tuning_s=1, products_against_best=9, products_against_default=8
    )
    answer: TunedAnswer | LibraryAnswer
    if program is None:
        answer = LibraryAnswer(routine="naive", reason="none passed", closest=None, break_even=break_even)
    else:
        answer = TunedAnswer(
            best=make_evaluation(program), speedup_over_best=2, speedup_over_default=3, break_even=break_even
        )
    routine = BaselineTiming(routine="naive", timing=make_timing(10), preparation_ms=0)
    return KernelReport(
        workload=problem.workload,
        answer=answer,
        baselines=Baselines(default="naive", routines=(routine,)),
        device=make_device(),
        search=SearchReport(
            strategy="auto",
            num_candidates=1,
            outcomes={"passed": 1},
            policy_versions=(),
            seconds=1,
            first_graded_s=0.5,
        ),
    )


@pytest.mark.parametrize("is_tuned", [True, False])
def test_an_answer_for_a_task_has_every_file_that_one_for_a_matrix_has(is_tuned: bool) -> None:
    problem = make_problem("dot")
    report = report_of(problem, BUILT["dot"].text if is_tuned else None)
    kinds = kinds_of(report)
    assert kinds == (("cu", "hpp", "py", "json") if is_tuned else ("py", "json"))
    with zipfile.ZipFile(io.BytesIO(artifact("zip", report, None).content)) as archive:
        assert archive.namelist() == [artifact_name(report.workload, kind) for kind in kinds]
        for kind in kinds:
            assert archive.read(artifact_name(report.workload, kind)) == artifact(kind, report, None).content
    if not is_tuned:
        with pytest.raises(Conflict, match="nothing faster than naive was found"):
            artifact("hpp", report, None)


@pytest.mark.parametrize("is_tuned", [True, False])
def test_a_loader_of_a_task_holds_a_program_that_is_right_and_asks_for_cupy(
    is_tuned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = report_of(make_problem("dot"), BUILT["dot"].text if is_tuned else None)
    loader = ModuleType("loader")
    text = artifact("py", report, None).content.decode()
    exec(compile(text, "loader.py", "exec"), loader.__dict__)
    assert report.workload == loader.WORKLOAD
    assert BUILT["dot"].text == loader.PROGRAM
    assert "total = kernel(x, y)" in text
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unavailable, match="pip install cupy"):
        loader.load()


def test_arrays_of_a_task_are_checked_by_name() -> None:
    problem = make_problem("dot")
    right = [np.zeros(operand.shape(problem.sizes)) for operand in problem.arrays if operand.role == "input"]
    assert list(named_inputs(problem, right)) == ["x", "y"]
    with pytest.raises(InvalidInput, match="dot takes x, y: 1 arrays are given"):
        named_inputs(problem, right[:1])
    with pytest.raises(InvalidInput, match="y has shape") as caught:
        named_inputs(problem, [right[0], right[1][1:]])
    assert caught.value.field == "y"
