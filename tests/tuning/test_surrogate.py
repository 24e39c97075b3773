"""The posterior, one measurement at a time, against the textbook's formula."""

import numpy as np
import pytest

from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.doubt import Errors, covariance, fitted_doubt
from sparsesmith.tuning.surrogate import Surrogate
from tests.tuning.grids import make_grid

DOUBT = Doubt(workload=0.5, family=0.2, parameters=0.15, noise=0.05, reach=1.5)


def test_updates_one_at_a_time_are_the_posterior_of_all_at_once() -> None:
    grid = make_grid("csr_scalar", "sell")
    prior = np.log(grid.estimates())
    seen = [0, 3, len(prior) - 1, len(prior) // 2]
    told = prior[seen] + np.array([0.3, 0.2, -0.1, -0.2])
    surrogate = Surrogate(grid, prior, DOUBT)
    for index, value in zip(seen, told, strict=True):
        surrogate.observe(index, value)

    everything = Errors(grid.family_numbers(), grid.coordinates(), np.zeros(len(prior)))
    noiseless = covariance(Doubt(0.5, 0.2, 0.15, 0.0, 1.5), everything)
    gram = noiseless[np.ix_(seen, seen)] + DOUBT.noise**2 * np.eye(len(seen))
    weights = np.linalg.solve(gram, noiseless[seen])
    mean = prior + weights.T @ (told - prior[seen])
    variance = np.diag(noiseless) - np.einsum("ij,ij->j", noiseless[seen], weights)
    assert surrogate.mean == pytest.approx(mean, abs=1e-9)
    assert surrogate.deviation == pytest.approx(np.sqrt(variance), abs=1e-6)


def test_a_supposition_leaves_the_original_and_every_mean_alone() -> None:
    grid = make_grid("csr_scalar", "sell")
    prior = np.log(grid.estimates())
    surrogate = Surrogate(grid, prior, DOUBT)
    before = surrogate.deviation.copy()
    supposed = surrogate.copy()
    supposed.suppose(0)
    assert np.array_equal(supposed.mean, prior)
    assert (supposed.deviation < before).all()
    assert np.array_equal(surrogate.deviation, before)
    surrogate.observe(0, float(prior[0]))
    assert surrogate.deviation == pytest.approx(supposed.deviation)


def test_the_parts_of_errors_are_found_again_in_samples_of_them() -> None:
    grid = make_grid("csr_scalar", "sell", "csr_vector", "csr_stream", "ell")
    rng = np.random.default_rng(3)
    true = Doubt(workload=1.0, family=0.3, parameters=0.15, noise=0.05, reach=1.5)
    samples = []
    for _ in range(60):
        chosen = rng.choice(len(grid.prospects), 30, replace=False)
        shape = Errors(grid.family_numbers()[chosen], grid.coordinates()[chosen], np.zeros(30))
        values = rng.multivariate_normal(np.zeros(30), covariance(true, shape))
        samples.append(Errors(shape.family, shape.coordinates, values))
    found = fitted_doubt(samples)
    assert found.family == pytest.approx(true.family, rel=0.35)
    assert found.parameters == pytest.approx(true.parameters, rel=0.35)
    assert found.noise == pytest.approx(true.noise, rel=0.35)


def test_a_family_that_the_cost_model_hardly_knows_is_doubted_more() -> None:
    grid = make_grid("csr_scalar", "csr_vector")
    surrogate = Surrogate(grid, np.log(grid.estimates()), DOUBT, frozenset({"csr_scalar"}))
    strange = np.array(grid.families) == "csr_scalar"
    assert surrogate.deviation[strange].min() > surrogate.deviation[~strange].max()
