"""Every mutator changes programs into others that compute the same, and leaves alone what it cannot change."""

import random
from collections.abc import Iterator
from functools import cache

import pytest

from services.evaluator.compiling.compiler import Compiler
from sparsesmith.errors import InvalidOption
from sparsesmith.mutation import MUTATORS, Mutant, Subject, mutants, random_mutant, subject_of
from tests.mutation.programs import PATTERN, instance_subject, mixed_rows, task_subject, what_is_wrong, written_subject

CHILDREN = 6
"""Of each mutator, chosen from those of all subjects."""

PLAIN = """\
//@ format csr
//@ launch spmv grid=ceil_div(num_rows,64) block=64 dependency=programmatic
extern "C" __global__ void __launch_bounds__(64) spmv(int num_rows, int num_cols, int nnz, \
const int* __restrict__ row_offsets, const int* __restrict__ col_indices, const float* __restrict__ values, \
const float* x, float* __restrict__ y) {
  int row = blockIdx.x * 64 + threadIdx.x;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  float first = x[0];
  if (row >= num_rows) return;
  float sum = 0 * first;
  for (int j = row_offsets[row]; j < row_offsets[row + 1]; j++) sum += values[j] * x[col_indices[j]];
  y[row] = sum;
}
"""


@cache
def subjects() -> tuple[Subject, ...]:
    return tuple(_subjects())


def _subjects() -> Iterator[Subject]:
    yield instance_subject("csr_vector", lanes=4, unroll=2, index="i32", block=64, dependency="programmatic")
    yield instance_subject("csr_vector", element_type="float64", lanes=8, unroll=1, index="u16", block=128)
    yield instance_subject("csr_scalar", unroll=2, index="i32", block=64, dependency="programmatic")
    yield instance_subject("csr_block", pattern=mixed_rows(40, 300), block=64)
    yield instance_subject("row_bins", dependency="programmatic")
    yield instance_subject("row_bins", element_type="float64")
    yield instance_subject("csr_tiles", dependency="programmatic")
    yield instance_subject("sell", dependency="programmatic")
    yield instance_subject("hyb", dependency="programmatic")
    yield instance_subject("spmm_rows", num_dense_cols=8, vector=2, lanes=4, chunks=1, block=64, index="i32")
    yield instance_subject("spmm_rows_split", num_dense_cols=32, dependency="programmatic")
    yield instance_subject("spmm_tiles", num_dense_cols=8, dependency="programmatic")
    yield written_subject(PLAIN)
    yield task_subject("matmul")
    yield task_subject("top_k", element_type="float64")


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(1, timeout_s=120) as started:
        yield started


@pytest.mark.parametrize("name", MUTATORS)
def test_children_of_a_mutator_compute_the_same(name: str, compiler: Compiler) -> None:
    children = [(subject, mutant) for subject in subjects() for mutant in mutants(subject, name)]
    assert len(children) >= 4
    for subject, mutant in random.Random(name).sample(children, min(CHILDREN, len(children))):
        assert what_is_wrong(subject, mutant.text, compiler) == "", f"{mutant.deed}\n{mutant.text}"


@pytest.mark.parametrize("seed", ["a", "b", "c"])
def test_programs_changed_three_times_compute_the_same(seed: str, compiler: Compiler) -> None:
    for subject in subjects()[:5]:
        mutant = random_mutant(subject, seed, steps=3)
        assert mutant is not None
        assert mutant.deed.count(" + ") == 2
        assert what_is_wrong(subject, mutant.text, compiler) == "", f"{mutant.deed}\n{mutant.text}"


def test_a_seed_gives_the_same_program_again_and_others_give_others() -> None:
    subject = instance_subject("row_bins")
    texts = [_text(random_mutant(subject, str(seed), steps=2)) for seed in range(8)]
    assert texts == [_text(random_mutant(subject, str(seed), steps=2)) for seed in range(8)]
    assert len(set(texts)) >= 7


def test_deeds_of_different_programs_have_one_name() -> None:
    deeds = [{mutant.deed for mutant in mutants(subject, "hints")} for subject in subjects()[:2]]
    assert {"hints: x ldcg", "hints: values ldca"} <= deeds[0] & deeds[1]


def test_a_hint_is_given_to_every_read_of_an_array_and_to_no_other() -> None:
    child = _child(written_subject(PLAIN), "hints: x ldcg")
    assert "float first = __ldcg(x + (0));" in child
    assert "values[j] * __ldcg(x + (col_indices[j]))" in child
    assert _without(child, "__ldcg(x + (0))", "__ldcg(x + (col_indices[j]))") == _without(
        PLAIN, "x[0]", "x[col_indices[j]]"
    )


def test_a_vector_that_may_still_be_written_is_never_read_as_a_constant() -> None:
    assert "hints: x ldg" not in {mutant.deed for mutant in mutants(written_subject(PLAIN), "hints")}


def test_the_wait_never_moves_past_a_read_of_a_vector() -> None:
    subject = written_subject(PLAIN)
    assert {mutant.deed for mutant in mutants(subject, "waits")} == {"waits: wait first"}
    late = PLAIN.replace("  float first = x[0];\n", "  float first = 1;\n")
    moved = _child(written_subject(late), "waits: wait last")
    assert moved.index("float sum") < moved.index("griddepcontrol.wait") < moved.index("for (int j")


def test_the_wait_never_moves_past_a_call_that_reads_a_vector() -> None:
    called = PLAIN.replace("  float first = x[0];\n", "  float first = first_of(0);\n")
    wait = next(line for line in called.splitlines(keepends=True) if "griddepcontrol.wait" in line)
    reads = called.replace(wait, "  auto first_of = [&](int i) { return x[i]; };\n" + wait)
    assert "waits: wait last" not in {mutant.deed for mutant in mutants(written_subject(reads), "waits")}
    alone = reads.replace("return x[i];", "return 1.0f * i;")
    assert "waits: wait last" in {mutant.deed for mutant in mutants(written_subject(alone), "waits")}


def test_vectors_of_indices_are_of_lengths_that_are_read_at_once() -> None:
    deeds = {mutant.deed for mutant in mutants(instance_subject("spmm_hubs", num_dense_cols=32), "off_grid")}
    assert any(deed.startswith("off_grid: block") for deed in deeds)
    assert not any(deed.startswith("off_grid: unroll") for deed in deeds)


def test_a_kernel_whose_threads_leave_before_a_barrier_is_not_made_to_stride() -> None:
    barrier = PLAIN.replace("  float sum", "  __syncthreads();\n  float sum")
    assert [mutant.deed for mutant in mutants(written_subject(PLAIN), "grids")] != []
    assert [mutant.deed for mutant in mutants(written_subject(barrier), "grids")] == []


def test_an_operand_too_large_for_shared_memory_is_not_staged() -> None:
    wide = mixed_rows(40, 50_000)
    assert list(mutants(written_subject(PLAIN, wide), "staging")) == []
    assert len(list(mutants(written_subject(PLAIN), "staging"))) == 3


def test_the_number_of_threads_is_changed_in_the_launch_the_bounds_and_the_code() -> None:
    text = _child(written_subject(PLAIN), "blocks: block 256")
    assert text == PLAIN.replace("64", "256")
    assert list(mutants(written_subject(PLAIN.replace("sum = 0 *", "sum = 64 *")), "blocks")) == []
    assert list(mutants(written_subject(PLAIN.replace("float sum", "__shared__ float s; float sum")), "blocks")) == []


def test_a_program_of_a_task_is_changed_where_no_matrix_is_asked_for() -> None:
    deeds = {mutant.deed for name in MUTATORS for mutant in mutants(task_subject("top_k"), name)}
    assert {"blocks: block 512", "grids: striding 4", "hints: x ldcg", "unrolling: unroll 4"} <= deeds
    assert not any(deed.startswith(("staging", "bins", "off_grid", "mixtures", "odd_lanes")) for deed in deeds)


def test_a_program_of_another_hand_has_no_parameters_to_change() -> None:
    for name in ("off_grid", "bins", "odd_lanes", "mixtures"):
        assert list(mutants(written_subject(PLAIN), name)) == []


def test_numbers_of_parameters_are_such_as_no_family_offers() -> None:
    subject = instance_subject("csr_vector", lanes=4, block=64)
    assert subject.instance is not None
    offered = {64, 128, 256, 512}
    blocks = {
        mutant.subject.instance.parameters["block"]
        for mutant in mutants(subject, "off_grid")
        if mutant.subject.instance
    }
    assert blocks - {64}
    assert not (blocks - {64}) & offered


def test_spliced_lines_are_refused() -> None:
    with pytest.raises(InvalidOption, match="spliced"):
        subject_of(PLAIN.replace("return;", "return\\\n;"), PATTERN, "spmv", "float32")


def _child(subject: Subject, deed: str) -> str:
    return next(mutant.text for mutant in mutants(subject, deed.partition(":")[0]) if mutant.deed == deed)


def _text(mutant: Mutant | None) -> str:
    assert mutant is not None
    return mutant.text


def _without(text: str, *parts: str) -> str:
    for part in parts:
        text = text.replace(part, "")
    return text
