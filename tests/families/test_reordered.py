"""Programs with rows and columns in another order: proposed where that is allowed and worth it, right in the user's."""

from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.matrices.generated import stencil_2d
from benchmarks.matrices.irregular import neighbours
from services.evaluator.candidates import parse_candidate
from services.evaluator.compiling.ahead import CompilationsAhead
from services.evaluator.compiling.compiler import Compiler
from services.evaluator.evaluation import evaluate_kernel
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.built_formats import BuiltMatrices
from services.evaluator.isolation.workbench import LocalWorkbench
from services.evaluator.race import Race
from sparsesmith.families import FAMILIES, FamilyInstance, propose
from sparsesmith.families.catalogue import REORDERING
from sparsesmith.families.fixed.proposal import compressed_instance, compressions
from sparsesmith.families.proposal import prospects_of, shortlist, work_of
from sparsesmith.formats.building.numbering import NUMBERINGS, Numbering, numbered_by
from sparsesmith.formats.format import ParameterValue
from sparsesmith.formats.row_bins import count_lengths, cut_bins
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.operations import Problem
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import bind_numbers
from sparsesmith.program.program import parse_program
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.grid import grid_of
from sparsesmith.tuning.tuner import Tuner
from sparsesmith_proto.kernel import Outcome, Passed, Repeats, Workload
from sparsesmith_proto.message import ElementType
from sparsesmith_proto.words import ReorderOption
from tests.evaluator.grading_tools import make_candidate

NAME = "row_bins_reordered"
FOR_SPMM = ("spmm_distinct_reordered", "spmm_sell_reordered")


@pytest.fixture(scope="module")
def points() -> Pattern:
    """A graph of neighbours whose numbers say nothing of where they lie."""
    return neighbours(60_000, 8, 3)


def reordered(pattern: Pattern, reorder: ReorderOption = "allowed") -> list[FamilyInstance]:
    found = propose(pattern, "spmv", "float32", limit=400, reorder=reorder)
    return [instance for instance in found if instance.family in REORDERING]


def test_it_is_proposed_where_it_is_allowed_and_nowhere_else(points: Pattern) -> None:
    assert {NAME, *FOR_SPMM} == REORDERING
    found = reordered(points)
    assert {instance.parameters["numbering"] for instance in found} == {"breadth"}
    assert found[0].parameters["index"] == "u16"
    assert not reordered(points, "keep")
    assert NAME not in {each.family.name for each in shortlist(work_of(points, "float32"), "spmv", "float32", (), 12)}


def test_rows_alone_are_moved_for_many_columns_where_they_come_to_share_rows_of_b(points: Pattern) -> None:
    def offered(pattern: Pattern, reorder: ReorderOption) -> set[str]:
        found = prospects_of(work_of(pattern, "float32", 32), "spmm", "float32", reorder)
        return {each.family.name for each in found} & REORDERING

    assert offered(points, "allowed") == {*FOR_SPMM}
    assert not offered(points, "keep")
    assert not offered(stencil_2d(300, 5), "allowed")


def test_the_tuner_asks_for_it_among_the_first_where_it_is_allowed(points: Pattern) -> None:
    for reorder in get_args(ReorderOption):
        grid = grid_of(points, "spmv", "float32", 1, reorder)
        asked = {instance.family for instance in Tuner(grid, AnalyticCost()).next_batch(8)}
        assert (NAME in asked) == (reorder == "allowed")


def test_what_lies_close_already_or_is_small_is_left_as_it_is() -> None:
    assert not reordered(stencil_2d(300, 5))
    assert not reordered(pattern_from_scipy(sp.random(2000, 2000, 0.01, format="csr", rng=np.random.default_rng(1))))


def test_open_programs_are_filled_in_as_the_family_writes_them(points: Pattern) -> None:
    for instance in reordered(points)[::9]:
        assert instance.open_program is not None
        circumstances = Circumstances(points, 1, 132)
        filled = bind_numbers(instance.open_program, {}, circumstances, "spmv", "float32").text
        assert filled == instance.program
        program = parse_program(filled, "spmv", "float32")
        assert program.format.build(points, program.parameters).scratch == {"ordered_x": points.num_cols}


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=2, timeout_s=120) as compiler:
        yield compiler


def rectangular() -> Pattern:
    """Rows of all lengths, an empty one and a column that nothing is in."""
    mask = np.random.default_rng(5).random((70, 110)) < np.linspace(0.01, 0.6, 70)[:, None] ** 2
    mask[9], mask[:, 17], mask[40] = False, False, True
    return pattern_from_scipy(sp.csr_matrix(mask))


def instance_of(pattern: Pattern, numbering: Numbering, limits: tuple[int, ...], element_type: ElementType,
                **changes: str) -> FamilyInstance:  # fmt: skip
    bins = cut_bins(count_lengths(pattern.row_lengths), limits, 4, 32)
    parameters: dict[str, ParameterValue] = {
        **{name: spec.default for name, spec in FAMILIES[NAME].parameters.items()},
        "widths": ",".join(str(bin_.width) for bin_ in reversed(bins)),
        "warps": ",".join(str(bin_.past_warp) for bin_ in bins),
        "numbering": numbering,
        **changes,
    }
    return FAMILIES[NAME].instance(parameters, element_type)


def outcome_of(text: str, problem: Problem, compiler: Compiler) -> Outcome:
    workbench = LocalWorkbench(InterpreterDevice(), problem)
    with CompilationsAhead(compiler, "sm_90", 20) as ahead:
        parsed = parse_candidate(make_candidate(text), problem.workload)
        return evaluate_kernel(parsed, ahead.result, workbench, Race(baseline_us=1e9))


def problem_of(
    pattern: Pattern, element_type: ElementType, values: FixedValues | None = None, **changes: object
) -> Problem:
    digest = None if values is None else values.digest
    given: dict[str, object] = {"operation": "spmv", "element_type": element_type, "values": digest, **changes}
    return Problem(Workload.model_validate({"pattern": pattern.digest, **given}), pattern, values)


@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("limits", [(200,), (3, 20, 200)], ids=["one bin", "three bins"])
@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_the_judge_passes_it_on_a_rectangular_matrix(
    compiler: Compiler, numbering: Numbering, limits: tuple[int, ...], element_type: ElementType
) -> None:
    pattern = rectangular()
    instance = instance_of(pattern, numbering, limits, element_type, dependency="programmatic")
    outcome = outcome_of(instance.program, problem_of(pattern, element_type), compiler)
    assert isinstance(outcome, Passed), outcome
    assert outcome.storage_format == "row_bins"


@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("name", FOR_SPMM)
def test_the_judge_passes_moved_rows_of_many_columns(compiler: Compiler, name: str, element_type: ElementType) -> None:
    pattern, family = rectangular(), FAMILIES[name]
    parameters = {name: spec.default for name, spec in family.parameters.items()} | {"vector": 2}
    text = family.render(parameters, element_type, 64)
    problem = problem_of(pattern, element_type, operation="spmm", num_dense_cols=64)
    assert "rows=breadth" in text
    outcome = outcome_of(text, problem, compiler)
    assert isinstance(outcome, Passed), outcome


@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_it_gives_equal_bits_and_scaled_products(compiler: Compiler, numbering: Numbering) -> None:
    pattern = rectangular()
    program = instance_of(pattern, numbering, (3, 20, 200), "float64").program
    steady = outcome_of(program, problem_of(pattern, "float64", deterministic=True), compiler)
    assert isinstance(steady, Passed) and steady.repeats == Repeats(runs=16, contexts=1), steady
    scaled = outcome_of(program, problem_of(pattern, "float64", alpha_beta=True), compiler)
    assert isinstance(scaled, Passed), scaled


def test_values_that_are_fixed_may_be_compressed_in_the_other_order(compiler: Compiler) -> None:
    pattern = rectangular()
    values = fixed_values(np.arange(pattern.nnz) % 7 / 2, "float32")
    plain = instance_of(pattern, "breadth", (3, 20, 200), "float32")
    texts = {compressed_instance(plain, [each]).program for each in compressions(values)}
    assert any("//@ values dictionary" in text for text in texts)
    for text in texts:
        outcome = outcome_of(text, problem_of(pattern, "float32", values), compiler)
        assert isinstance(outcome, Passed), (outcome, text)


def test_a_search_for_an_order_counts_in_the_conversion_of_every_format_that_uses_it() -> None:
    pattern = rectangular()
    matrices = BuiltMatrices(problem_of(pattern, "float32"))
    for limits in ((200,), (3, 20, 200)):
        program = parse_program(instance_of(pattern, "breadth", limits, "float32").program, "spmv", "float32")
        built = matrices.get(program)
        assert built.conversion_ms >= numbered_by(pattern, "breadth")[0].taken_ms > 0
