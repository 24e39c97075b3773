"""The family catalogue and the texts that families write."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from functools import cache

import pytest

from sparsesmith.errors import InvalidOption
from sparsesmith.families import FAMILIES, Family
from sparsesmith.formats.format import IntegerRange, NumberList, OneOf, ParameterSpec, ParameterValue
from sparsesmith.program.program import KernelProgram, parse_program
from sparsesmith_proto.message import ElementType

DENSE_COLS = (8, 32, 128)
ELEMENT_TYPES: tuple[ElementType, ...] = ("float32", "float64")
MAX_CHARACTERS = 6500
"""Two kernels with the argument list of panels; most programs stay under 2,000."""
MAX_COMBINATIONS = 20_000


def values_of(spec: ParameterSpec) -> tuple[ParameterValue, ...]:
    match spec:
        case OneOf():
            return spec.values
        case IntegerRange():
            return (spec.low, spec.default, spec.high)
        case NumberList():
            return (spec.default, str(spec.high))


def combinations(family: Family) -> Iterator[dict[str, ParameterValue]]:
    """Every combination of parameter values, or as many at random as there is time for."""
    values = {name: values_of(spec) for name, spec in family.parameters.items()}
    if math.prod(map(len, values.values())) <= MAX_COMBINATIONS:
        for combination in itertools.product(*values.values()):
            yield dict(zip(values, combination, strict=True))
        return
    chance = random.Random(family.name)
    for _ in range(MAX_COMBINATIONS):
        yield {name: chance.choice(of_name) for name, of_name in values.items()}


def choices(family: Family, element_type: ElementType, num_dense_cols: int) -> list[dict[str, ParameterValue]]:
    """Legal choices that together hold every value that any legal choice holds."""
    return _choices(family.name, element_type, num_dense_cols)


@cache
def _choices(name: str, element_type: ElementType, num_dense_cols: int) -> list[dict[str, ParameterValue]]:
    family = FAMILIES[name]
    legal = [choice for choice in combinations(family) if family.accepts(choice, element_type, num_dense_cols)]
    random.Random(0).shuffle(legal)
    seen: set[tuple[str, ParameterValue]] = set()
    kept = []
    for choice in legal:
        if not choice.items() <= seen:
            kept.append(choice)
            seen |= choice.items()
    return kept


def programs(family: Family) -> Iterator[tuple[str, ElementType]]:
    for element_type in ELEMENT_TYPES:
        for num_dense_cols in DENSE_COLS if family.operation == "spmm" else (1,):
            for choice in choices(family, element_type, num_dense_cols):
                yield family.render(choice, element_type, num_dense_cols), element_type


def default_choice(family: Family) -> Mapping[str, ParameterValue]:
    return {name: spec.default for name, spec in family.parameters.items()}


def test_there_are_at_least_twelve_spmv_and_four_spmm_families() -> None:
    operations = [family.operation for family in FAMILIES.values()]
    assert operations.count("spmv") >= 12
    assert operations.count("spmm") >= 4


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_program_keeps_the_contract_and_stays_short(family: Family) -> None:
    for text, element_type in programs(family):
        program = parse_program(text, family.operation, element_type)
        assert isinstance(program, KernelProgram)
        assert len(text) <= MAX_CHARACTERS
        assert "//" not in "\n".join(line for line in text.split("\n") if not line.startswith("//@"))


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_every_parameter_value_changes_the_program(family: Family) -> None:
    element_type, num_dense_cols = family.element_types[0], 128 if family.operation == "spmm" else 1
    for name, spec in family.parameters.items():
        differ = is_decided_by_the_type(family, name, num_dense_cols)
        for choice in choices(family, element_type, num_dense_cols):
            texts = {
                family.render(changed, element_type, num_dense_cols)
                for value in values_of(spec)
                if family.accepts(changed := {**choice, name: value}, element_type, num_dense_cols)
            }
            differ = differ or len(texts) > 1
        assert differ, f"{name} never changes the text"


def is_decided_by_the_type(family: Family, name: str, num_dense_cols: int) -> bool:
    """Whether one value of a parameter is legal with each element type, and another with another."""
    legal = [
        {choice[name] for choice in choices(family, element_type, num_dense_cols)}
        for element_type in family.element_types
    ]
    return all(len(values) == 1 for values in legal) and len(set.union(*legal)) > 1


@pytest.mark.parametrize("family", FAMILIES.values(), ids=lambda family: family.name)
def test_rendering_is_deterministic(family: Family) -> None:
    element_type = family.element_types[-1]
    choice = choices(family, element_type, 32)[0]
    assert family.render(choice, element_type, 32) == family.render(choice, element_type, 32)


def test_a_missing_parameter_is_refused_with_the_limits_named() -> None:
    family = FAMILIES["csr_vector"]
    choice = dict(default_choice(family))
    del choice["lanes"]
    with pytest.raises(InvalidOption, match="does not accept") as caught:
        family.render(choice, "float32")
    assert "lanes: 2, 4, 8, 16, 32" in str(caught.value.limit)


def test_a_value_out_of_range_is_refused() -> None:
    family = FAMILIES["csr_vector"]
    with pytest.raises(InvalidOption):
        family.render({**default_choice(family), "lanes": 3}, "float32")


def test_parameters_that_do_not_go_together_are_refused() -> None:
    sell = FAMILIES["sell_lanes"]
    assert sell.accepts({**default_choice(sell), "slice": 16, "lanes": 2}, "float32")
    assert not sell.accepts({**default_choice(sell), "slice": 16, "lanes": 4}, "float32")
    rows = FAMILIES["spmm_rows"]
    assert rows.accepts({**default_choice(rows), "vector": 4}, "float32", 32)
    assert not rows.accepts({**default_choice(rows), "vector": 4}, "float64", 32)
    assert not rows.accepts({**default_choice(rows), "vector": 4, "lanes": 1}, "float32", 7)
