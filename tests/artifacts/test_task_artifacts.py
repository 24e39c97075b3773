"""Files of a task's answer: headers on the CUDA runtime of `host_cuda.py`, loaders run."""

import io
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
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
from tests.artifacts.answers import make_device, report_of
from tests.artifacts.host_cuda import Case, HostProgram, build, check_launches
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

ARRAY = """
template <typename Word>
Word* array(std::size_t count, int first) {
  void* pointer;
  cudaMalloc(&pointer, count * sizeof(Word));
  static_cast<Word*>(pointer)[0] = Word(first);
  return static_cast<Word*>(pointer);
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

    def case(self) -> Case:
        """Calls the kernel with arrays whose first entries tell them apart, and frees them."""
        arrays = {operand.name: operand for operand in self.problem.arrays}
        made = [
            f"{'float' if each.dtype == 'T' else 'int'}* {name} = "
            f"array<{'float' if each.dtype == 'T' else 'int'}>({each.num_elements(self.problem.sizes)}, {place + 3});"
            for place, (name, each) in enumerate(arrays.items())
        ]
        freed = [f"cudaFree({name});" for name in arrays]
        call = f"{self.namespace}::Kernel kernel; kernel({', '.join(arrays)});"
        header = task_header(self.text, self.problem.workload, make_device())
        return Case(self.namespace, header, " ".join((*made, call, *freed)))

    def arguments(self) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """The name and the contents of each."""
        sizes, plan = self.problem.sizes, self.plan
        names = [operand.name for operand in self.problem.arrays]
        operands = {operand.name: operand for operand in self.problem.arrays}
        for argument in plan.arguments:
            if argument.role == "size":
                yield argument.name, np.array([sizes[argument.name]])
            elif argument.role == "scratch":
                type_ = np.dtype(argument.c_type.replace("float*", "float32").replace("int*", "int32"))
                yield argument.name, np.zeros(plan.own_scratch[argument.name] // type_.itemsize, type_)
            else:
                operand = operands[argument.name]
                array = np.zeros(operand.num_elements(sizes), operand.array_type("float32"))
                array[0] = names.index(argument.name) + 3
                yield argument.name, array


def built_of(number: int, task: str, text: str = "") -> Built:
    problem = make_problem(task)
    return Built(number, problem, text or filled(problem, problem.operation.programs[PROGRAMS[task]]))


BUILT = {name: built_of(number, name) for number, name in enumerate(PROGRAMS)}
BUILT["sum"] = built_of(len(PROGRAMS), "sum", OWN_SCRATCH)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> HostProgram:
    return build(tmp_path_factory.mktemp("tasks"), [built.case() for built in BUILT.values()], ARRAY)


@pytest.mark.parametrize("name", BUILT)
def test_a_task_header_launches_its_program_with_the_arrays_of_the_call(name: str, program: HostProgram) -> None:
    built = BUILT[name]
    printed = program.run(built.number, built.plan.arguments)
    check_launches(printed, built.plan.launches, dict(built.arguments()))


def test_macros_of_a_task_do_not_reach_whoever_includes_its_header() -> None:
    assert "#undef WIDTH\n" in task_header(OWN_SCRATCH, BUILT["sum"].problem.workload, make_device())


@pytest.mark.parametrize("is_tuned", [True, False])
def test_an_answer_for_a_task_has_every_file_that_one_for_a_matrix_has(is_tuned: bool) -> None:
    problem = make_problem("dot")
    report = report_of(problem.workload, BUILT["dot"].text if is_tuned else None)
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
    report = report_of(make_problem("dot").workload, BUILT["dot"].text if is_tuned else None)
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
