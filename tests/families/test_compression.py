"""General programs written for compressed values, and what is proposed for which values."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparsesmith.families import FAMILIES, FamilyInstance, propose
from sparsesmith.families.fixed.proposal import compressions, propose_fixed
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.families.text.program import Choice, Launch, program
from sparsesmith.families.text.values import Compression, Table
from sparsesmith.formats.values.storage import Constant, Dictionary, Float32, ValueStorage
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.program.program import parse_program
from sparsesmith_proto.message import ElementType


def choice(
    storage: ValueStorage | None = None, table: Table = "cached", element_type: ElementType = "float32"
) -> Choice:
    compression = None if storage is None else Compression(storage, table)
    return Choice({"load": "ldcs"}, element_type, 1, "spmv", "csr", compression)


READS = "sum += $value(f(j)[0]) + $value_at(k + g(i));"


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        (None, "sum += __ldcs(values + f(j)[0]) + values[k + g(i)];"),
        (Dictionary("u16"), "sum += dictionary[__ldcs(value_codes + f(j)[0])] + dictionary[value_codes[k + g(i)]];"),
        (Constant(), "sum += constant_value[0] + constant_value[0];"),
        (Float32(), "sum += __ldcs(values + f(j)[0]) + values[k + g(i)];"),
    ],
)
def test_every_read_of_a_value_goes_through_what_stands_in_its_place(
    storage: ValueStorage | None, expected: str
) -> None:
    assert choice(storage).fill(READS) == expected


def test_a_compressed_program_declares_what_it_reads() -> None:
    family = FAMILIES["csr_scalar"]
    default = {name: spec.default for name, spec in family.parameters.items()}
    text = family.compressed(default, "float32", 1, Compression(Dictionary("u16")))
    assert text is not None
    assert "//@ values dictionary code=u16\n" in text
    assert "const unsigned short* __restrict__ value_codes, const float* __restrict__ dictionary" in text


def test_a_table_in_shared_memory_is_filled_before_anything_else_in_the_kernels_that_read_values() -> None:
    shared = choice(Dictionary("u8"), "shared")
    multiply = Launch("spmv", "1", 32, shared.fill("y = $value_at(k);"), reads_values=True)
    text = program(shared, {"index": "i32"}, multiply, Launch("add", "1", 32, "y = 0;"))
    first, second = (kernel.split("{\n", 1)[1].split("\n") for kernel in text.split('extern "C"')[1:])
    assert first[0].strip() == "__shared__ float table[256];"
    assert first[2].strip() == "__syncthreads();"
    assert first[3].strip() == "y = table[value_codes[k]];"
    assert second[0].strip() == "y = 0;"


VECTOR = "$values(4, j * 4)"


def test_values_read_as_vectors_are_looked_up_together() -> None:
    coded = choice(Dictionary("u8"))
    assert coded.fill(VECTOR) == "decoded(__ldcs((const uchar4*)(value_codes + j * 4)), dictionary)"
    assert "float4 decoded(uchar4 codes, const float* table)" in coded.value_function(4)
    assert choice(Constant()).fill(VECTOR).startswith("make_float4(constant_value[0], constant_value[0],")
    narrow = choice(Float32(), element_type="float64")
    assert narrow.fill("$values(2, j)") == "widened(__ldcs((const float2*)(values + j)))"
    assert "double2 widened(float2 narrow)" in narrow.value_function(2)


@pytest.mark.parametrize(
    ("family", "storage", "why"),
    [
        ("sell", Constant(), "padding could not be told from the value"),
        ("spmm_panel", Constant(), "its read of a value counts on"),
        ("csr_scalar", Float32(), "the values are float32 already"),
        ("hyb", Dictionary("u8"), "it points into the values"),
        ("dia_literal_wide", Float32(), "it points into the values"),
    ],
)
def test_a_family_is_left_as_it_is_where_a_storage_does_not_go_with_its_reads(
    family: str, storage: ValueStorage, why: str
) -> None:
    default = {name: spec.default for name, spec in FAMILIES[family].parameters.items()}
    element_type: ElementType = "float64" if family == "dia_literal_wide" else "float32"
    assert FAMILIES[family].compressed(default, element_type, 32, Compression(storage)) is None, why


@pytest.mark.parametrize(("family", "changes"), [("dia_literal", {}), ("bsell", {"block_rows": 3, "block_cols": 3})])
@pytest.mark.parametrize("storage", [Dictionary("u8"), Float32()])
def test_values_that_a_policy_keeps_in_the_cache_are_read_as_they_are(
    family: str, changes: dict[str, int], storage: ValueStorage
) -> None:
    """Loads by a policy take the element type: with float32 values such programs did not compile."""
    kept = {name: spec.default for name, spec in FAMILIES[family].parameters.items()} | {"keep": 30} | changes
    assert FAMILIES[family].accepts(kept, "float64")
    assert FAMILIES[family].compressed(kept, "float64", 1, Compression(storage)) is None


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2.0, 2.0], ["constant", "dictionary code=u8 cached", "dictionary code=u8 shared"]),
        ([2.0, 0.1], ["dictionary code=u8 cached", "dictionary code=u8 shared"]),
        ([*range(1, 300)] * 4, ["dictionary code=u16"]),
        (np.arange(70_000) / 8, ["float32"]),
        (np.arange(70_000) / 7, []),
    ],
)
def test_compressions_are_those_that_the_values_allow(values: list[float], expected: list[str]) -> None:
    found = [str(each).removesuffix(" cached") if "u16" in str(each) else str(each) for each in
             compressions(fixed_values(values, "float64"))]  # fmt: skip
    assert found == expected


def stencil(side: int = 30) -> tuple[Pattern, FixedValues]:
    line = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    matrix = sp.csr_matrix(sp.kron(line, sp.identity(side)) + sp.kron(sp.identity(side), line))
    return pattern_from_scipy(matrix), fixed_values(matrix.data, "float32")


def proposed(pattern: Pattern, values: FixedValues, limit: int = 60) -> list[FamilyInstance]:
    general = propose(pattern, "spmv", "float32", 1, limit=limit)
    return propose_fixed(pattern, values, "spmv", "float32", general, limit)


def test_a_stencil_gets_rows_by_code_codes_by_slot_and_plain_programs() -> None:
    instances = proposed(*stencil())
    kinds = {instance.family in FIXED_FAMILIES or "values" in instance.parameters for instance in instances}
    assert kinds == {True, False}
    assert instances[0].family == "dia_rows"
    assert len({instance.program for instance in instances}) == len(instances) == 60
    for instance in instances:
        parse_program(instance.program, "spmv", "float32")


def test_values_that_all_differ_get_what_any_values_get() -> None:
    pattern, _ = stencil()
    values = fixed_values(np.random.default_rng(0).uniform(-1, 1, 100_000)[: pattern.nnz], "float32")
    instances = proposed(pattern, values, 20)
    plain = [instance for instance in instances if "values" not in instance.parameters]
    assert {instance.family for instance in plain} <= set(FAMILIES)


def test_families_for_fixed_values_are_not_among_those_for_any() -> None:
    assert not set(FIXED_FAMILIES) & set(FAMILIES)
