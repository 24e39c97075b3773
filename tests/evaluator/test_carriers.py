"""bfloat16 in arrays of a library that does not know it: as words of 16 bits, and back."""

import numpy as np
import pytest

from services.evaluator.checking.correctness import judge, spoil
from services.evaluator.cuda.carriers import CARRIER, carried, carrier_of, element_name, uncarried
from services.evaluator.device import Draw, Ran
from sparsesmith.elements import ALL_TYPES, ELEMENTS, dtype_of
from sparsesmith.operations.operation import Expected
from sparsesmith_proto.kernel import Mismatch
from sparsesmith_proto.message import ElementType


@pytest.mark.parametrize("name", ALL_TYPES)
def test_every_element_type_is_carried_by_one_as_wide_that_numpy_has(name: ElementType) -> None:
    for given in (name, dtype_of(name)):
        assert carrier_of(given).itemsize == ELEMENTS[name].num_bytes
        assert carrier_of(given).isbuiltin
        assert element_name(carrier_of(given)) == name


def test_other_types_carry_themselves() -> None:
    assert carrier_of(np.int32) == np.int32
    assert element_name(np.dtype(np.int32)) == "int32"


@pytest.mark.parametrize("name", ALL_TYPES)
def test_a_carried_array_is_the_same_memory_and_comes_back_as_it_was(name: ElementType) -> None:
    numbers = np.array([[1, -2.5, 0.1]]).astype(dtype_of(name))
    words = carried(numbers)
    assert words.dtype == carrier_of(name)
    assert np.shares_memory(words, numbers)
    assert uncarried(words).dtype == numbers.dtype
    assert np.array_equal(uncarried(words), numbers)


def test_a_spoiled_entry_of_carried_numbers_is_one_that_no_result_has() -> None:
    wide = np.linspace(-3, 3, 64)
    expected = {"y": Expected(wide, abs(wide), 0.01 * abs(wide) + 1e-9)}
    held = Draw(
        "uniform", {}, expected, {"y": dtype_of("bfloat16")},
        widened=lambda words: uncarried(words).astype(np.float64),
        narrowed=lambda numbers, dtype: carried(numbers.astype(dtype)),
    )  # fmt: skip
    generator = np.random.default_rng(6)
    assert not isinstance(judge(Ran(held.right, guards_intact=True, inputs_intact=True), held), Mismatch)
    for _ in range(50):
        outputs = held.right
        assert outputs["y"].dtype == CARRIER
        spoil(outputs["y"], generator)
        judged = judge(Ran(outputs, guards_intact=True, inputs_intact=True), held)
        assert isinstance(judged, Mismatch)
        assert "e+3" in judged.message
