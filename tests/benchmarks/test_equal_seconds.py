"""Arms of a comparison at equal seconds, with graders that say that all passes."""

import argparse
import asyncio
from pathlib import Path

import pytest

from benchmarks.learning.serving import idle_sampler
from benchmarks.origin import ROOT
from benchmarks.tuning.equal_seconds import Arm, searched, workloads
from services.generator.settings import GeneratorSettings
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.operations import Problem
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.generator.orders import make_pattern, make_workload
from tests.generator.reports import make_passed, make_timing, report_for


class Graders:
    """Everything passes and takes the same."""

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        await asyncio.sleep(0.01)
        return report_for(job, make_passed(make_timing(5)))


@pytest.mark.parametrize("arm", ["families", "on", "down"])
def test_an_arm_ends_by_itself_or_with_its_seconds(arm: Arm) -> None:
    pattern = make_pattern()
    options = argparse.Namespace(seconds_each=8.0)
    settings = GeneratorSettings(policy_dir=ROOT / "models" / "sparsesmith-28m")
    sampler = idle_sampler(settings) if arm == "down" else None
    problem = Problem(make_workload(pattern), pattern)
    grid_of_problem(problem)  # What a process pays once.
    row, winner = asyncio.run(searched(arm, problem, Graders(), sampler, CostModels(), options))
    assert winner is not None and (row["search_us"], row["by"]) == (5, "families")
    assert row["passed"] == row["candidates"] > 0
    assert row["seconds"] < 12
    if arm == "on":
        assert row["candidates"] > 48, "the tuner alone stops after 32 that brought nothing"


def test_plans_take_turns_on_matrices_and_large_products_are_left_out(tmp_path: Path) -> None:
    pack = tmp_path / "core.pack"
    write_pack(pack, {"tub1000": encode_pattern(make_pattern())})
    options = argparse.Namespace(
        pack=pack,
        plan=["spmv:float32:1", "spmm:float32:128"],
        no_generated=False,
        names=["tub1000", "stencil2d5_1000"],
        matrices=9,
        generated_products=3.3e8,
    )
    chosen = [(plan.operation, source.name) for plan, source in workloads(options)]
    assert sorted(chosen) == [("spmm", "tub1000"), ("spmv", "stencil2d5_1000"), ("spmv", "tub1000")]
