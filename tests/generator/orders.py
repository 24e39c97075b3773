"""Builders of what the generator works on."""

from typing import Any

import numpy as np
import scipy.sparse

from services.generator.orders import KernelOrder
from services.generator.task import TuningTask
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith_proto.api import Budget, TuningOptions
from sparsesmith_proto.kernel import Prompt, Workload


def make_pattern(num_rows: int = 40, num_cols: int = 30, density: float = 0.1, seed: int = 0) -> Pattern:
    random = np.random.default_rng(seed)
    return pattern_from_scipy(scipy.sparse.random(num_rows, num_cols, density=density, format="csr", rng=random))


def make_workload(pattern: Pattern, **changes: Any) -> Workload:
    return Workload(**{"pattern": pattern.digest, "operation": "spmv", "element_type": "float32", **changes})


def make_prompt(**changes: Any) -> Prompt:
    return Prompt(**{"encoder": "structural", "sample_seed": 1, "architecture": "sm_90", **changes})


def make_order(pattern: Pattern, candidates: int = 8, seconds: float = 20, **options: Any) -> KernelOrder:
    budget = Budget(candidates=candidates, seconds=seconds)
    return KernelOrder(workload=make_workload(pattern), options=TuningOptions(budget=budget, **options))


def make_task(pattern: Pattern | None = None, **changes: Any) -> TuningTask:
    chosen = make_pattern() if pattern is None else pattern
    order = make_order(chosen, **changes)
    return TuningTask(job_id="job-1", run_id="job-1.r", order=order, problem=Problem(order.workload, chosen))
