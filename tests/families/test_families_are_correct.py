"""Every kernel family, compiled and run on the interpreter: right on awkward patterns, with no fault found.

The interpreter checks bounds, races, barriers and uninitialised reads; y and scratch start as NaN.
"""

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
import scipy.sparse as sp

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter import Buffer, PtxModule, launch, load_module
from sparsesmith.elements import WIDE_TYPES, dtype_of
from sparsesmith.errors import InvalidProgram
from sparsesmith.families import FAMILIES, Family
from sparsesmith.formats.format import (
    Argument,
    IntegerRange,
    Layout,
    NumberList,
    OneOf,
    ParameterSpec,
    ParameterValue,
)
from sparsesmith.formats.row_bins import count_lengths, cut_bins
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices, pattern_from_scipy
from sparsesmith.operations.sddmm import sampled
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.message import ElementType

TOLERANCE = {"float32": 1e-5, "float64": 1e-12, "float16": 2.0**-11 + 1e-5, "bfloat16": 2.0**-8 + 1e-5}
SMALLEST = {"float32": 1e-300, "float64": 1e-300, "float16": 2.0**-25, "bfloat16": 1e-300}
"""Half of float16's smallest number: where its results lose digits."""
FEW_SMS = 3
"""So that resident grids have to stride."""
CHOICES_A_FAMILY = 8
"""Shared out evenly among its workloads."""
MAX_COMBINATIONS = 20_000

Choice = dict[str, ParameterValue]
Workload = tuple[ElementType, int]


def scattered(rows: int, cols: int, density: float) -> Pattern:
    return pattern_from_scipy(sp.random(rows, cols, density, format="csr", random_state=np.random.default_rng(rows)))


def with_empty_rows() -> Pattern:
    dense = np.zeros((70, 45))
    dense[3], dense[40, ::3], dense[69, 44] = 1, 1, 1
    return pattern_from_scipy(sp.csr_matrix(dense))


def with_long_rows() -> Pattern:
    dense = (np.random.default_rng(0).random((257, 2000)) < 0.002).astype(float)
    dense[100], dense[200, ::3] = 1, 1
    return pattern_from_scipy(sp.csr_matrix(dense))


def banded() -> Pattern:
    return pattern_from_scipy(sp.diags([1.0, 1.0, 1.0, 1.0], [-7, -1, 0, 3], shape=(333, 333), format="csr"))


def dense_blocks() -> Pattern:
    blocks = sp.random(40, 35, 0.1, format="csr", random_state=np.random.default_rng(1))
    return pattern_from_scipy(sp.kron(blocks, np.ones((3, 3)), format="csr"))


PATTERNS: dict[str, Pattern] = {
    "one entry": pattern_from_indices(1, 1, [0], [0]),
    "one row": pattern_from_indices(1, 300, [0] * 150, range(0, 300, 2)),
    "one column": pattern_from_indices(131, 1, range(0, 131, 2), [0] * 66),
    "empty rows": with_empty_rows(),
    "long rows": with_long_rows(),
    "banded": banded(),
    "dense blocks": dense_blocks(),
    "wide": scattered(300, 1000, 0.03),
    "tall": scattered(1999, 13, 0.2),
    "very wide": scattered(150, 70_000, 0.0004),
}


def workloads(family: Family) -> list[Workload]:
    """Wide types where the family takes them, else those of 16 bits."""
    dense_cols = {"spmm": (8, 32), "sddmm": (5, 40)}.get(family.operation, (1,))
    types = [name for name in WIDE_TYPES if name in family.element_types] or family.element_types
    return [(element_type, columns) for element_type in types for columns in dense_cols]


def some_choices(family: Family, workload: Workload) -> list[Choice]:
    """Choices chosen evenly from all legal ones; the choice is the same in every run."""
    num_choices = CHOICES_A_FAMILY // len(workloads(family))
    chance = random.Random(f"{family.name} {workload}")
    values = {name: _values(spec) for name, spec in family.parameters.items()}
    if math.prod(map(len, values.values())) > MAX_COMBINATIONS:
        chosen = ({name: chance.choice(of_name) for name, of_name in values.items()} for _ in range(MAX_COMBINATIONS))
        return list(itertools.islice((choice for choice in chosen if family.accepts(choice, *workload)), num_choices))
    every = [dict(zip(values, combination, strict=True)) for combination in itertools.product(*values.values())]
    legal = [choice for choice in every if family.accepts(choice, *workload)]
    return chance.sample(legal, min(num_choices, len(legal)))


def _values(spec: ParameterSpec) -> tuple[ParameterValue, ...]:
    match spec:
        case OneOf():
            return spec.values
        case IntegerRange():
            return (spec.low, spec.default, spec.high)
        case NumberList():
            return (spec.default,)


def fitted(choice: Choice, pattern: Pattern) -> Choice | None:
    """The choice with what must match the pattern set right; None where it cannot serve it."""
    longest = int(pattern.row_lengths.max())
    if "width" in choice and "index" not in choice:
        return {**choice, "width": longest} if longest <= 32 else None
    if "heavy" in choice:
        return {**choice, "heavy": min(int(choice["heavy"]), 4)}
    if "offsets" in choice:
        diagonals = np.unique(pattern.col_indices - pattern.row_indices())
        return {**choice, "offsets": ",".join(map(str, diagonals))} if diagonals.size <= 64 else None
    if "edge" in choice:
        return {**choice, "edge": "cut" if pattern.num_cols % int(choice["block_cols"]) else choice["edge"]}
    if "widths" in choice:
        limits = (1, 3, 10, longest + 10) if choice["load"] == "ldcs" else (longest + 10,)
        bins = cut_bins(count_lengths(pattern.row_lengths), limits, int(choice["steps"]), int(choice["max_lanes"]))
        widths = ",".join(str(bin_.width) for bin_ in reversed(bins))
        return {**choice, "widths": widths, "warps": ",".join(str(bin_.past_warp) for bin_ in bins)}
    if "capacity" in choice and pattern.num_cols > int(choice["capacity"]):
        return None
    return choice


def run(program: KernelProgram, module: PtxModule, layout: Layout, pattern: Pattern, workload: Workload) -> None:
    """Runs every launch in order and compares with SciPy in float64."""
    element_type, num_dense_cols = workload
    dtype = dtype_of(element_type)
    generator = np.random.default_rng(2)
    values = generator.uniform(-1, 1, pattern.nnz).astype(dtype)
    if "sddmm" in {step.kernel for step in program.launches}:
        u, v = (generator.uniform(-1, 1, (size, num_dense_cols)) for size in (pattern.num_rows, pattern.num_cols))
        check_sampled(program, module, layout, pattern, u.astype(dtype), v.astype(dtype))
        return
    is_transposed = "spmv_t" in {step.kernel for step in program.launches}
    num_given, num_results = (pattern.num_cols, pattern.num_rows)[:: -1 if is_transposed else 1]
    dense = generator.uniform(-1, 1, (num_given, num_dense_cols)).astype(dtype)
    output = np.full(num_results * num_dense_cols, np.nan, dtype)
    launch_all(program, module, layout, pattern, {"x": dense, "b": dense, "y": output, "c": output}, values)
    stored = pattern.to_scipy(values.astype(np.float64))
    matrix = stored.T.tocsr() if is_transposed else stored
    reference, scale = matrix @ dense.astype(np.float64), abs(matrix) @ abs(dense.astype(np.float64))
    bound = TOLERANCE[element_type] * scale + SMALLEST[element_type]
    np.testing.assert_array_less(abs(output.reshape(reference.shape) - reference), bound)


def check_sampled(
    program: KernelProgram,
    module: PtxModule,
    layout: Layout,
    pattern: Pattern,
    u: npt.NDArray[np.floating],
    v: npt.NDArray[np.floating],
) -> None:
    """A sampled product of dense matrices, compared with NumPy in float64."""
    z = np.full(pattern.nnz, np.nan, u.dtype)
    launch_all(program, module, layout, pattern, {"u": u, "v": v, "z": z}, np.ones(pattern.nnz, u.dtype))
    reference, scale, _ = sampled(pattern, u, v)
    np.testing.assert_array_less(abs(z - reference), TOLERANCE[u.dtype.name] * scale + SMALLEST[u.dtype.name])


def launch_all(
    program: KernelProgram,
    module: PtxModule,
    layout: Layout,
    pattern: Pattern,
    operands: dict[str, npt.NDArray[np.floating]],
    values: npt.NDArray[np.floating],
) -> None:
    """In order, with no fault found."""
    num_dense_cols = next(array.shape[1] if array.ndim == 2 else 1 for array in operands.values())
    arrays: dict[str, npt.NDArray[np.generic]] = {**layout.indices, "values": layout.pack(values)}
    arrays |= {name: np.full(num_dense_cols * size, np.nan, values.dtype) for name, size in layout.scratch.items()}
    arrays |= {name: array.reshape(-1) for name, array in operands.items()}
    sizes = {"num_rows": pattern.num_rows, "num_cols": pattern.num_cols, "nnz": pattern.nnz, **layout.sizes}
    sizes |= {"num_sms": FEW_SMS, "num_dense_cols": num_dense_cols}
    signature = program.signature
    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}

    def passed(argument: Argument, starts_early: bool) -> Buffer | int:
        if argument.role == "size":
            return sizes[argument.name]
        is_writable = argument.role in ("output", "scratch")
        dependent = starts_early and (is_writable or argument.role == "input")
        return Buffer(argument.name, contiguous[argument.name], is_writable, dependent=dependent)

    for step in program.launches:
        resolved = step.resolve(sizes)
        arguments = [passed(argument, resolved.dependency == "programmatic") for argument in signature]
        report = launch(
            module,
            resolved.kernel,
            resolved.grid,
            resolved.block,
            arguments,
            dynamic_shared_bytes=resolved.shared_bytes,
        )
        assert report.finding is None, report.finding


@dataclass(frozen=True)
class Trial:
    """A choice fitted to a pattern that it can serve."""

    family: Family
    workload: Workload
    suited: Choice
    pattern: Pattern
    text: str
    program: KernelProgram


def trials(family: Family, choice: Choice, workload: Workload) -> Iterator[Trial]:
    """On every pattern that the choice can serve."""
    for pattern in PATTERNS.values():
        suited = fitted(choice, pattern)
        if suited is None:
            continue
        text = family.render(suited, *workload)
        program = parse_program(text, family.operation, workload[0])
        try:
            program.format.build(pattern, program.parameters)
        except InvalidProgram:
            continue
        yield Trial(family, workload, suited, pattern, text, program)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(num_workers=2, timeout_s=120) as compiler:
        yield compiler


def run_all(compiler: Compiler, tried: Sequence[Trial]) -> None:
    """Checks each; texts are compiled while those before them run."""
    compiling = {source: compiler.submit(source, "sm_90") for source in dict.fromkeys(map(source_of, tried))}
    modules: dict[str, PtxModule] = {}
    for trial in tried:
        source = source_of(trial)
        if source not in modules:
            compiled = compiling[source].result()
            assert isinstance(compiled, Compiled), compiled.log
            assert sum(kernel.spill_bytes for kernel in compiled.resources.values()) <= 16
            modules[source] = load_module(compiled.ptx)
        layout = trial.program.format.build(trial.pattern, trial.program.parameters)
        try:
            run(trial.program, modules[source], layout, trial.pattern, trial.workload)
        except AssertionError as error:
            (name,) = (name for name, pattern in PATTERNS.items() if pattern is trial.pattern)
            tried_on = f"{trial.family.name} {trial.suited} {trial.workload} on {name}"
            raise AssertionError(f"{tried_on}: {error}\n{trial.text}") from error


def source_of(trial: Trial) -> str:
    return trial.program.source


WITH_NARROW_COLUMNS = [
    (family, index)
    for family in FAMILIES.values()
    if family.operation == "spmv" and "index" in family.parameters
    for index in _values(family.parameters["index"])
    if index != "i32"
]


@pytest.mark.parametrize(("family", "index"), WITH_NARROW_COLUMNS, ids=lambda given: getattr(given, "name", given))
def test_every_width_of_columns_is_right_on_patterns_that_it_fits(
    compiler: Compiler, family: Family, index: str
) -> None:
    widths = {**family.parameters, "index": OneOf(index, (index,))}
    tried = [
        [*trials(family, choice, workload)]
        for workload in workloads(family)
        for choice in some_choices(replace(family, parameters=widths), workload)[:2]
    ]
    assert sum(map(len, tried)) >= len(tried)
    run_all(compiler, [*itertools.chain(*tried)])


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_family_is_right_on_awkward_patterns(compiler: Compiler, family: Family) -> None:
    tried = [
        [*trials(family, choice, workload)]
        for workload in workloads(family)
        for choice in some_choices(family, workload)
    ]
    assert sum(map(len, tried)) >= len(tried)
    run_all(compiler, [*itertools.chain(*tried)])
