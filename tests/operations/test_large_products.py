"""Large products of references come from whoever was brought for them, and are looked at."""

from collections.abc import Iterator

import numpy as np
import pytest

from sparsesmith.operations import large_products
from sparsesmith.operations.large_products import install, multiplied, uninstall
from sparsesmith.operations.operation import Float64Array
from tests.operations.checked import make_problem

NUMBERS = np.random.default_rng(4)
A, B = NUMBERS.normal(size=(60, 50)), NUMBERS.normal(size=(50, 40))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    uninstall()


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_products, "LARGE", 2 * 60 * 50 * 40)


def by_columns(a: Float64Array, b: Float64Array) -> Float64Array:
    """Added up in another order."""
    return sum((np.outer(a[:, k], b[k]) for k in range(a.shape[1])), np.zeros((len(a), b.shape[1])))


@pytest.mark.usefixtures("small_is_large")
def test_large_ones_come_from_what_was_installed() -> None:
    asked: list[tuple[int, ...]] = []

    def multiply(a: Float64Array, b: Float64Array) -> Float64Array:
        asked.append(a.shape)
        return by_columns(a, b)

    install(multiply)
    np.testing.assert_allclose(multiplied(A, B), A @ B, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(multiplied(A[:59], B), A[:59] @ B)
    assert asked == [(60, 50)]


@pytest.mark.usefixtures("small_is_large")
def test_what_cannot_be_had_is_made_here() -> None:
    install(lambda a, b: None)
    np.testing.assert_array_equal(multiplied(A, B), A @ B)


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize(
    "spoiled", [lambda found: found * (1 + 1e-9), lambda found: found + np.nan, lambda found: found.astype(np.float32)]
)
def test_a_product_that_is_another_ends_it(spoiled: object) -> None:
    assert callable(spoiled)
    install(lambda a, b: spoiled(by_columns(a, b)))
    with pytest.raises(ArithmeticError, match="is another on the host"):
        multiplied(A, B)


def test_the_reference_of_matmul_is_made_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem("matmul")
    sizes = problem.sizes
    monkeypatch.setattr(large_products, "LARGE", 2 * sizes["m"] * sizes["k"] * sizes["n"])
    inputs = {
        "a": NUMBERS.normal(size=(sizes["m"], sizes["k"])).astype(np.float32),
        "b": NUMBERS.normal(size=(sizes["k"], sizes["n"])).astype(np.float32),
    }
    before = problem.operation.expect(problem, inputs)["c"]
    install(by_columns)
    after = problem.operation.expect(problem, inputs)["c"]
    np.testing.assert_allclose(after.reference, before.reference, rtol=0, atol=1e-11)
    np.testing.assert_allclose(after.bound, before.bound, rtol=1e-10)
