"""Proposals for fixed values, compiled and run on the interpreter with those values: right, with no fault found."""

import itertools
import random
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import scipy.sparse as sp

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter import Buffer, PtxModule, launch, load_module
from sparsesmith.errors import InvalidProgram
from sparsesmith.families import FAMILIES, Family, FamilyInstance, propose
from sparsesmith.families.estimates.statistics import PatternStatistics
from sparsesmith.families.fixed.family import FixedFamily
from sparsesmith.families.fixed.proposal import propose_fixed
from sparsesmith.families.fixed.rows import FIXED_FAMILIES
from sparsesmith.families.text.values import Compression
from sparsesmith.formats.format import OneOf, ParameterValue
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.formats.values.storage import Constant, Dictionary, Float32
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.matrix.values import FixedValues, fixed_values
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType, Operation
from tests.families.test_families_are_correct import PATTERNS, fitted, some_choices, workloads

TOLERANCE = {"float32": 1e-5, "float64": 1e-12}
FEW_SMS = 3
FAMILIES_AT_MOST = 12


def poisson(side: int) -> sp.csr_matrix:
    line = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side))
    return (sp.kron(line, sp.identity(side)) + sp.kron(sp.identity(side), line)).tocsr()


def unweighted() -> sp.csr_matrix:
    graph = sp.random(500, 431, 0.02, format="csr", random_state=np.random.default_rng(1))
    graph += sp.csr_matrix((np.ones(500), (range(500), [row % 431 for row in range(500)])), shape=(500, 431))
    graph.data[:] = 3.0
    return graph


def with_empty_rows() -> sp.csr_matrix:
    graph = unweighted().tolil()
    graph[7], graph[499] = 0, 0
    return graph.tocsr()


def many_values() -> sp.csr_matrix:
    matrix = sp.random(300, 300, 0.03, format="csr", random_state=np.random.default_rng(2))
    matrix.data = np.arange(matrix.nnz) / 8
    return matrix


def wide_band() -> sp.csr_matrix:
    return sp.diags([float(offset % 5) + 1 for offset in range(-20, 21)], range(-20, 21), shape=(200, 210)).tocsr()


def cube(side: int) -> sp.csr_matrix:
    """Seven points; some rows beyond the border have values of their own."""
    line, one = sp.diags([-1.0, 2.0, -1.0], [-1, 0, 1], shape=(side, side)), sp.identity(side)
    plane = sp.kron(line, one) + sp.kron(one, line)
    matrix = (sp.kron(plane, one) + sp.kron(sp.identity(side * side), line)).tocsr()
    matrix.data[matrix.indptr[100] : matrix.indptr[103]] = 5.0
    return matrix


MATRICES: dict[str, Callable[[], sp.csr_matrix]] = {
    "poisson": lambda: poisson(17),
    "unweighted": unweighted,
    "empty rows": with_empty_rows,
    "many values": many_values,
    "wide band": wide_band,
    "cube": lambda: cube(13),
    "one entry": lambda: sp.csr_matrix(np.array([[2.5]])),
}


def some_of_each(instances: list[FamilyInstance]) -> list[FamilyInstance]:
    """One instance of each family and compression."""
    kept: dict[tuple[str, str], FamilyInstance] = {}
    for instance in instances:
        if "values" in instance.parameters or instance.family in FIXED_FAMILIES:
            kept.setdefault((instance.family, str(instance.parameters.get("values"))), instance)
    return list(kept.values())[:FAMILIES_AT_MOST]


def shape_of(pattern: Pattern, workload: Workload) -> tuple[int, int]:
    """Of the matrix as it is multiplied with."""
    shape = pattern.num_rows, pattern.num_cols
    return shape[::-1] if workload.operation == "spmv_t" else shape


def run(
    text: str, module: PtxModule, pattern: Pattern, values: FixedValues, workload: Workload
) -> tuple[np.ndarray, np.ndarray]:
    """The output and the dense operand."""
    program = parse_program(text, workload.operation, workload.element_type)
    layout = build_layout(program.format, program.parameters, pattern, values)
    columns, element = workload.num_dense_cols, np.dtype(workload.element_type)
    num_read, num_written = reversed(shape_of(pattern, workload))
    dense = np.random.default_rng(3).uniform(-1, 1, num_read * columns).astype(element)
    output = np.full(num_written * columns, np.nan, element)
    arrays = {**layout.indices, "x": dense, "b": dense, "y": output, "c": output}
    arrays |= {name: np.full(columns * size, np.nan, element) for name, size in layout.scratch.items()}
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, **layout.sizes}
    sizes |= {"num_sms": FEW_SMS, "num_dense_cols": columns}
    arguments = [
        sizes[argument.name]
        if argument.role == "size"
        else Buffer(argument.name, np.ascontiguousarray(arrays[argument.name]), argument.role in ("output", "scratch"))
        for argument in program.signature
    ]
    for step in program.launches:
        resolved = step.resolve(sizes)
        report = launch(
            module,
            resolved.kernel,
            resolved.grid,
            resolved.block,
            arguments,
            dynamic_shared_bytes=resolved.shared_bytes,
        )
        assert report.finding is None, report.finding
    return output.reshape(-1, columns), dense.reshape(-1, columns)


def own_choices(family: FixedFamily, pattern: Pattern, element_type: ElementType) -> list[dict[str, ParameterValue]]:
    """Choices that together hold every value of every parameter, with what must match the pattern set right."""
    shape = PatternStatistics(pattern)
    fitted: dict[str, ParameterValue] = {"offsets": shape.listed_diagonals, "width": shape.longest}
    specs = {name: spec for name, spec in family.parameters.items() if isinstance(spec, OneOf)}
    every = [
        {name: fitted.get(name, value) for name, value in zip(specs, values, strict=True)}
        for values in itertools.product(*(spec.values for spec in specs.values()))
    ]
    random.Random(1).shuffle(every)
    kept, seen = [], set[tuple[str, ParameterValue]]()
    for choice in every:
        complete = {name: choice.get(name, fitted.get(name, "")) for name in family.parameters}
        if not complete.items() <= seen and family.accepts(complete, element_type):
            kept.append(complete)
            seen |= complete.items()
    return kept


def check(compiler: Compiler, text: str, pattern: Pattern, values: FixedValues, workload: Workload) -> None:
    program = parse_program(text, workload.operation, workload.element_type)
    compiled = compiler.compile(program.source, "sm_90")
    assert isinstance(compiled, Compiled), compiled.log
    output, dense = run(text, load_module(compiled.ptx), pattern, values, workload)
    stored = pattern.to_scipy(values.array.astype(np.float64))
    wide = stored.T if workload.operation == "spmv_t" else stored
    bound = TOLERANCE[workload.element_type] * (abs(wide) @ abs(dense.astype(np.float64))) + 1e-300
    np.testing.assert_array_less(abs(output - wide @ dense.astype(np.float64)), bound)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=1, timeout_s=120) as compiler:
        yield compiler


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize("operation", ["spmv", "spmm"])
def test_every_proposal_for_fixed_values_is_right(
    compiler: Compiler, name: str, element_type: ElementType, operation: Operation
) -> None:
    matrix = MATRICES[name]()
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, element_type)
    columns = 1 if operation == "spmv" else 8
    workload = Workload(pattern=pattern.digest, operation=operation, element_type=element_type, num_dense_cols=columns)
    general = propose(pattern, operation, element_type, columns, limit=48)
    instances = some_of_each(propose_fixed(pattern, values, operation, element_type, general, limit=200))
    assert instances or element_type == "float32" or name == "many values"
    for instance in instances:
        try:
            check(compiler, instance.program, pattern, values, workload)
        except AssertionError as error:
            raise AssertionError(f"{instance.family} {instance.parameters}: {error}\n{instance.program}") from error


@pytest.mark.parametrize("element_type", ["float32", "float64"])
@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("dia_rows", "cube"),
        ("dia_rows", "one entry"),
        ("dia_rows_wide", "cube"),
        ("dia_rows_wide", "poisson"),
        ("dia_rows_long", "wide band"),
        ("ell_rows", "poisson"),
        ("ell_rows", "unweighted"),
        ("sell_constant", "unweighted"),
        ("sell_constant", "one entry"),
    ],
)
def test_every_parameter_of_a_family_for_fixed_values_is_right(
    compiler: Compiler, family: str, name: str, element_type: ElementType
) -> None:
    matrix = MATRICES[name]()
    pattern, values = pattern_from_scipy(matrix), fixed_values(matrix.data, element_type)
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type=element_type)
    choices = own_choices(FIXED_FAMILIES[family], pattern, element_type)
    assert choices
    for choice in choices:
        text = FIXED_FAMILIES[family].render(choice, element_type)
        try:
            check(compiler, text, pattern, values, workload)
        except AssertionError as error:
            raise AssertionError(f"{choice}: {error}\n{text}") from error


COMPRESSIONS = (
    Compression(Dictionary("u8")),
    Compression(Dictionary("u8"), "shared"),
    Compression(Dictionary("u16")),
    Compression(Constant()),
    Compression(Float32()),
)
REWRITTEN_PATTERNS = ("dense blocks", "long rows", "tall")


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_general_family_stays_right_when_its_values_are_compressed(compiler: Compiler, family: Family) -> None:
    for number, (element_type, columns) in enumerate(workloads(family)):
        for place, choice in enumerate(some_choices(family, (element_type, columns))[:2]):
            name = REWRITTEN_PATTERNS[(number + place) % len(REWRITTEN_PATTERNS)]
            for compression in COMPRESSIONS[place::2]:
                check_compressed(compiler, family, choice, PATTERNS[name], compression, (element_type, columns))


def check_compressed(
    compiler: Compiler,
    family: Family,
    choice: dict[str, ParameterValue],
    pattern: Pattern,
    compression: Compression,
    kind: tuple[ElementType, int],
) -> None:
    """Nothing to do where the family does not suit the pattern or cannot be rewritten."""
    element_type, columns = kind
    suited = fitted(choice, pattern)
    if suited is None or not family.accepts(suited, element_type, columns):
        return
    text = family.compressed(suited, element_type, columns, compression)
    if text is None:
        return
    distinct_values = 1 if isinstance(compression.storage, Constant) else 7
    values = fixed_values((1 + np.arange(pattern.nnz) % distinct_values) / 2, element_type)
    workload = Workload(
        pattern=pattern.digest, operation=family.operation, element_type=element_type, num_dense_cols=columns
    )
    program = parse_program(text, family.operation, element_type)
    try:
        build_layout(program.format, program.parameters, pattern, values)
    except InvalidProgram:
        return
    try:
        check(compiler, text, pattern, values, workload)
    except AssertionError as error:
        raise AssertionError(f"{family.name} {suited} {compression} {kind}: {error}\n{text}") from error
