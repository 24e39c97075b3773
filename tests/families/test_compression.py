"""General programs rewritten for compressed values, and what is proposed for which values."""

import numpy as np
import pytest
import scipy.sparse as sp

from sparsesmith.families import FAMILIES, FamilyInstance, propose
from sparsesmith.families.compression import Compression, compressed_program
from sparsesmith.families.fixed_proposal import compressions, propose_fixed
from sparsesmith.families.fixed_values import FIXED_FAMILIES
from sparsesmith.formats.values.storage import Constant, Dictionary, Float32
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.program.program import parse_program

HEAD = '//@ format csr index=i32\n//@ launch spmv grid=1 block=32\nextern "C" __global__ void spmv('
ARGUMENTS = "int nnz, const float* __restrict__ values, const float* x) {\n"


def text_of(body: str, element: str = "float") -> str:
    return (HEAD + ARGUMENTS + body + "}\n").replace("float", element)


def body_of(program: str | None) -> str:
    assert program is not None
    return program.split("{\n", 1)[1].rsplit("}", 1)[0]


def test_every_read_of_a_value_becomes_a_look_up_of_its_code() -> None:
    text = text_of("sum += __ldcs(values + f(j)[0]) + values[k + g(i)];")
    program = compressed_program(text, Compression(Dictionary("u16")))
    expected = "sum += dictionary[__ldcs(value_codes + f(j)[0])] + dictionary[value_codes[k + g(i)]];"
    assert body_of(program) == expected
    assert program is not None
    assert "//@ values dictionary code=u16\n" in program
    assert "const unsigned short* __restrict__ value_codes, const float* __restrict__ dictionary" in program


def test_a_table_in_shared_memory_is_filled_before_anything_else() -> None:
    body = body_of(compressed_program(text_of("  y = values[k];"), Compression(Dictionary("u8"), "shared")))
    lines = body.split("\n")
    assert lines[0].strip() == "__shared__ float table[256];"
    assert lines[2].strip() == "__syncthreads();"
    assert lines[3].strip() == "y = table[value_codes[k]];"


VECTOR = "float4 v = __ldcs((const float4*)(values + j * 4)); y = values[j];"


def test_values_read_as_vectors_are_looked_up_together() -> None:
    program = compressed_program(text_of(VECTOR), Compression(Dictionary("u8")))
    expected = (
        "float4 v = decoded(__ldcs((const uchar4*)(value_codes + j * 4)), dictionary); y = dictionary[value_codes[j]];"
    )
    assert program is not None
    assert expected in program
    assert "float4 decoded(uchar4 codes, const float* table)" in program
    program = compressed_program(text_of(VECTOR), Compression(Constant()))
    assert "float4 v = make_float4(constant_value[0], constant_value[0]," in body_of(program)
    doubles = text_of("double2 v = __ldg((const double2*)(values + j));", "double")
    program = compressed_program(doubles, Compression(Float32()))
    assert program is not None
    assert "double2 v = widened(__ldg((const float2*)(values + j)));" in program


@pytest.mark.parametrize("body", ["y = *(float4*)(values + j);", "y = values[j++];", "y = __ldg(values + j[i]++);"])
def test_what_cannot_be_rewritten_is_left(body: str) -> None:
    assert compressed_program(text_of(body), Compression(Constant())) is None


def test_a_constant_needs_a_format_without_padding() -> None:
    text = text_of("y = values[j];")
    assert body_of(compressed_program(text, Compression(Constant()))) == "y = constant_value[0];"
    assert compressed_program(text.replace("format csr", "format ell"), Compression(Constant())) is None


def test_narrow_values_keep_their_name_and_are_for_doubles_not_read_as_vectors() -> None:
    text = text_of("y = values[j];", "double")
    program = compressed_program(text, Compression(Float32()))
    assert program is not None
    assert "const float* __restrict__ values" in program
    assert compressed_program(text_of("y = values[j];"), Compression(Float32())) is None
    assert compressed_program(text_of("y = *(const double2*)(values + j);", "double"), Compression(Float32())) is None


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
