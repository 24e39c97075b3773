"""Operations as things: what each has, and which registered ones are refused."""

import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import sparsesmith.operations
from sparsesmith.errors import InvalidOption
from sparsesmith.operations import Operand, Problem, check_axes, operation_named, operations
from sparsesmith.operations.catalogue import ON_MATRICES, checked_catalogue, our_tasks
from sparsesmith.operations.conv2d import OPERATION as CONV2D
from sparsesmith.operations.operation import RESERVED_OPERATION_IDS
from sparsesmith.operations.product import SparseProduct
from sparsesmith.operations.spmv import SPMV
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

NUM_SIZES = {"num_rows": 5, "num_cols": 7, "nnz": 11, "num_dense_cols": 3}


def make_operation(**changes: object) -> SparseProduct:
    return replace(SPMV, **({"name": "mine", "header_id": 9} | changes))  # type: ignore[arg-type]


def test_ids_of_operations_are_those_that_shipped_weights_know() -> None:
    ids = {name: each.header_id for name, each in operations().items()}
    assert {name: number for name, number in ids.items() if number is not None} == {
        "spmv": 0,
        "spmm": 1,
        "spmv_t": 2,
        "sddmm": 3,
    }


def test_every_folder_is_an_operation_of_its_name() -> None:
    folders = {path.parent.name for path in Path(sparsesmith.operations.__path__[0]).glob("*/__init__.py")}
    assert folders <= set(operations())


ON_A_MATRIX = [each.name for each in ON_MATRICES]


@pytest.mark.parametrize("name", ON_A_MATRIX)
def test_every_first_program_keeps_the_contract(name: str) -> None:
    operation = operation_named(name)
    for text in operation.programs.values():
        assert parse_program(with_element_type(text, "float64"), name, "float64").launches


@pytest.mark.parametrize("name", ON_A_MATRIX)
def test_operands_have_the_shapes_that_their_axes_say(name: str) -> None:
    shapes = {operand.name: operand.shape(NUM_SIZES) for operand in operation_named(name).operands if operand.axes}
    expected = {
        "spmv": {"x": (7,), "y": (5,)},
        "spmm": {"b": (7, 3), "c": (5, 3)},
        "spmv_t": {"x": (5,), "y": (7,)},
        "sddmm": {"u": (5, 3), "v": (7, 3), "z": (11,)},
    }
    assert shapes == expected[name]


def test_an_unknown_operation_is_refused_with_what_there_is() -> None:
    with pytest.raises(
        InvalidOption, match=r"operation 'spgemm' is unknown \(known: spmv, spmm, .*nearest: spmm, spmv"
    ) as caught:
        operation_named("spgemm")
    assert (caught.value.field, caught.value.value) == ("operation", "spgemm")


def test_a_size_that_an_operation_does_not_have_is_refused() -> None:
    check_axes(operation_named("spmm"), 8)
    with pytest.raises(InvalidOption, match="num_dense_cols is 8: spmv has one dense column"):
        check_axes(operation_named("spmv"), 8)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": "spmv"}, "name"),
        ({"name": "Mine!"}, "name"),
        ({"header_id": 0}, "header_id"),
        ({"header_id": RESERVED_OPERATION_IDS}, "header_id"),
        ({"operands": (Operand("x", "input", ("num_cols",)),)}, "operands"),
        ({"naive": "no such program"}, "naive"),
    ],
)
def test_a_registered_operation_that_does_not_fit_is_refused_by_its_part(
    changes: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidOption) as caught:
        checked_catalogue([SPMV, make_operation(**changes)])
    assert caught.value.field == field


@dataclass(frozen=True)
class Unfinished:
    name: str = "unfinished"
    version: int = 1


def test_a_registered_operation_that_lacks_a_part_is_refused_by_name() -> None:
    with pytest.raises(InvalidOption, match="operation unfinished: header_id is None, needed: to be there"):
        checked_catalogue([Unfinished()])  # type: ignore[list-item]


def test_a_registered_operation_joins_the_others() -> None:
    assert list(checked_catalogue([SPMV, make_operation()])) == ["spmv", "mine"]


def test_a_size_that_follows_from_the_axes_and_would_be_empty_is_refused() -> None:
    axes = {"rows": 3, "cols": 9, "kernel_rows": 5, "kernel_cols": 2}
    told = "axes: with rows=3, cols=9, kernel_rows=5, kernel_cols=2 conv2d would have out_rows=-1: at least 1"
    with pytest.raises(InvalidOption, match=told) as caught:
        check_axes(operation_named("conv2d"), 1, axes)
    assert (caught.value.field, caught.value.value, caught.value.limit) == ("axes", "-1", "1")
    check_axes(operation_named("conv2d"), 1, {**axes, "rows": 5})


def test_axes_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidOption, match="axes: n=4, k=5: top_k needs k <= n") as caught:
        check_axes(operation_named("top_k"), 1, {"n": 4, "k": 5})
    assert (caught.value.field, caught.value.limit) == ("axes", "k <= n")
    check_axes(operation_named("top_k"), 1, {"n": 5, "k": 5})


def test_a_size_that_follows_may_not_have_the_name_of_an_axis() -> None:
    task = replace(CONV2D, derived={**CONV2D.derived, "rows": lambda sizes: sizes["rows"]})
    with pytest.raises(InvalidOption, match="operation conv2d: axes is 'rows'"):
        checked_catalogue([task])


def test_kernels_take_the_sizes_that_follow_behind_the_axes_and_launch_lines_know_them() -> None:
    program = parse_program(CONV2D.programs["naive"].replace("T", "float"), "conv2d", "float32")
    sizes = ["rows", "cols", "kernel_rows", "kernel_cols", "out_rows", "out_cols"]
    assert [argument.name for argument in program.signature if argument.role == "size"] == sizes
    assert program.launches[0].resolve({"out_rows": 17, "out_cols": 33}).grid == (2, 3, 1)


@pytest.mark.parametrize("name", [task.name for task in our_tasks()])
def test_a_problem_that_was_looked_at_still_goes_to_the_devices_process(name: str) -> None:
    axes = dict(operation_named(name).trial)
    problem = Problem(Workload(operation=name, element_type="float32", axes=axes))
    assert problem.floor.bytes_moved > 0
    again = pickle.loads(pickle.dumps(problem))
    assert (again.workload, again.sizes, again.operation) == (problem.workload, problem.sizes, problem.operation)
