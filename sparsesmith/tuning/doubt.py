"""How far a cost model is off, and how its errors hang together: fitted to errors on workloads that it never saw."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.grid import FloatArray, IntArray

WORKLOAD_DOUBT = 1.0
"""The constant of a workload is not fitted: it does not change an order."""

START = (0.12, 0.12, 0.04, 2.0)
BOUNDS = ((0.08, 0.6), (0.08, 0.6), (0.02, 0.4), (0.5, 8.0))
"""The least doubt is more than records of likely winners show: a grid holds much that no record is like."""


@dataclass(frozen=True, eq=False)
class Errors:
    """Of the programs of one workload: measured less predicted log times."""

    family: IntArray
    coordinates: FloatArray
    values: FloatArray


def fitted_doubt(samples: Sequence[Errors]) -> Doubt:
    """The most likely parts of the errors' variance (maximum marginal likelihood over all workloads)."""

    def cost(logs: FloatArray) -> float:
        doubt = _doubt(np.exp(logs))
        return sum(_minus_log_likelihood(sample, doubt) for sample in samples)

    bounds = [(float(np.log(low)), float(np.log(high))) for low, high in BOUNDS]
    found = minimize(cost, np.log(START), method="Nelder-Mead", bounds=bounds, options={"maxiter": 150, "fatol": 0.5})
    return _doubt(np.exp(found.x))


def covariance(doubt: Doubt, errors: Errors) -> FloatArray:
    """Of the errors with one another, shape [programs, programs]."""
    squared = ((errors.coordinates[:, None, :] - errors.coordinates[None, :, :]) ** 2).sum(axis=2)
    near = doubt.family**2 + doubt.parameters**2 * np.exp(-0.5 * squared / doubt.reach**2)
    same = errors.family[:, None] == errors.family[None, :]
    return np.asarray(doubt.workload**2 + np.where(same, near, 0.0) + doubt.noise**2 * np.eye(len(errors.values)))


def _doubt(values: FloatArray) -> Doubt:
    family, parameters, noise, reach = map(float, values)
    return Doubt(workload=WORKLOAD_DOUBT, family=family, parameters=parameters, noise=noise, reach=reach)


def _minus_log_likelihood(errors: Errors, doubt: Doubt) -> float:
    factor = cho_factor(covariance(doubt, errors), lower=True)
    fit = float(errors.values @ cho_solve(factor, errors.values))
    return 0.5 * fit + float(np.log(np.diag(factor[0])).sum())
