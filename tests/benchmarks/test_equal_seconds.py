"""Arms of a comparison at equal seconds, with graders that say that all passes."""

import argparse
import asyncio
import csv
import time
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.learning.serving import idle_sampler
from benchmarks.matrices.suites import Packed
from benchmarks.origin import ROOT
from benchmarks.tuning.arms import (
    ARMS,
    DEFAULT_ARMS,
    Arm,
    Models,
    draws,
    search_of,
    serving_samplers,
    showing,
    sources_of,
)
from benchmarks.tuning.equal_seconds import Here, _options, searched, shown_instead, workloads
from services.evaluator.local import HeldMatrix
from services.generator.policy.value_filter import ValueFilter
from services.generator.search.families import FIRST_BATCH, NEXT_BATCHES
from services.generator.settings import GeneratorSettings
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.operations import Problem
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from tests.generator.orders import make_pattern, make_task, make_workload
from tests.generator.reports import make_candidate, make_passed, make_timing, report_for


class Graders:
    """Everything passes and takes the same."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        self.sizes.append(len(job.candidates))
        await asyncio.sleep(0.01)
        return report_for(job, make_passed(make_timing(5)))


@pytest.mark.parametrize("arm", ["families", "on", "down", "draws", "mutants"])
def test_an_arm_ends_by_itself_or_with_its_seconds(arm: Arm) -> None:
    pattern = make_pattern()
    options = argparse.Namespace(seconds_each=8.0)
    settings = GeneratorSettings(policy_dir=ROOT / "models" / "sparsesmith-28m")
    sampler = idle_sampler(settings) if arm == "down" else None
    problem = Problem(make_workload(pattern), pattern)
    grid_of_problem(problem)  # What a process pays once.
    row, winner = asyncio.run(searched(arm, problem, Graders(), sampler, Models(CostModels()), options))
    assert winner is not None and row["search_us"] == 5
    assert row["by"] == "families" or arm == "mutants"
    assert row["passed"] == row["candidates"] > 0
    assert row["seconds"] < 12
    if arm in ("on", "draws"):
        assert row["candidates"] > 48, "the tuner alone stops after 32 that brought nothing"
    others = {"down": {"policy"}, "mutants": {"mutate"}}
    assert set(row["sources"]) == {"families", *others.get(arm, set())}


def test_draws_are_the_grids_programs_once_in_an_order_of_the_runs_name_and_in_the_tuners_batches() -> None:
    task = make_task()
    drawn = [instance.program for instance in draws(task)]
    grid = grid_of_problem(task.problem)
    known = list(dict.fromkeys(grid.instance(index).program for index in range(len(grid.entries))))
    assert sorted(drawn) == sorted(known) and drawn != known
    assert drawn == [instance.program for instance in draws(task)]
    assert drawn != [instance.program for instance in draws(replace(task, run_id="other"))]
    graders, options = Graders(), argparse.Namespace(seconds_each=4.0)
    row, _ = asyncio.run(searched("draws", task.problem, graders, None, Models(CostModels()), options))
    assert graders.sizes[:3] == [FIRST_BATCH, NEXT_BATCHES, NEXT_BATCHES]
    assert len(set(graders.sizes[1:-1])) == 1 and row["candidates"] == sum(graders.sizes)


def test_arms_differ_in_what_they_search_with() -> None:
    sampler = idle_sampler(GeneratorSettings(policy_dir=ROOT / "models" / "sparsesmith-28m"))
    found = {arm: sources_of(arm, sampler, Models(CostModels())) for arm in ARMS}
    assert [arm for arm, sources in found.items() if sources.mutates] == ["mutate", "mutants"]
    assert [arm for arm, sources in found.items() if sources.edits] == ["edits", "unreported"]
    assert found["edits"].writers.names == ("mutate", "policy")
    alone = [arm for arm in ARMS if search_of(arm) == "sample"]
    assert alone == ["sample", "shuffled", "blind", "sample-learned", "sample-warm", "sample-valued"]


def test_arms_that_choose_by_a_value_model_ask_for_it_and_no_others(tmp_path: Path) -> None:
    sampler = idle_sampler(GeneratorSettings(policy_dir=ROOT / "models" / "sparsesmith-28m"))
    models = Models(CostModels(), ValueFilter(tmp_path, 4))
    found = [arm for arm in ARMS if sources_of(arm, sampler, models).value_filter is models.value]
    assert found == ["valued", "sample-valued"]
    with pytest.raises(SystemExit):
        _options(["core.pack", "--arms", "families", "valued"])


def test_a_policy_alone_whose_engine_does_not_serve_is_a_failure_and_no_result() -> None:
    pattern, options = make_pattern(), argparse.Namespace(seconds_each=1.0)
    sampler = idle_sampler(GeneratorSettings(policy_dir=ROOT / "models" / "sparsesmith-28m"))
    problem = Problem(make_workload(pattern), pattern)
    with pytest.raises(Unavailable, match="no candidate was proposed"):
        asyncio.run(searched("sample", problem, Graders(), sampler, Models(CostModels()), options))


def test_a_job_that_is_cancelled_keeps_the_device_until_it_has_ended() -> None:
    held, under_way = HeldMatrix(make_pattern(), None), list[int]()

    class Slow:
        """Counts who uses the device."""

        num_using = 0

        def grade(self, job: EvaluationJob, _: HeldMatrix) -> EvaluationReport:
            self.num_using += 1
            under_way.append(self.num_using)
            time.sleep(0.2)
            self.num_using -= 1
            return report_for(job, make_passed(make_timing(5)))

    async def cancelled_then_next() -> None:
        here = Here(Slow(), held)  # type: ignore[arg-type]
        job = EvaluationJob(
            job_id="job", workload=make_workload(held.pattern), candidates=(make_candidate("a", "text"),), budget_s=1
        )
        first = asyncio.create_task(here.grade(job))
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.gather(here.grade(job), first, return_exceptions=True)
        assert first.cancelled()

    asyncio.run(cancelled_then_next())
    assert under_way == [1, 1]


def test_only_a_policy_that_is_shown_embeddings_can_be_shown_none() -> None:
    sampler = idle_sampler(GeneratorSettings(policy_dir=ROOT / "models" / "sparsesmith-28m"))
    assert showing(sampler, None).host is sampler.host
    sampler.writer = Worded()  # type: ignore[assignment]
    with pytest.raises(InvalidOption, match="no embeddings"):
        showing(sampler, None)
    assert showing(sampler, make_pattern()).writer.encoder == "text"


class Worded:
    """A writer of texts."""

    encoder = "text"


def test_no_engine_is_started_for_arms_that_need_none() -> None:
    async def found() -> set[Arm]:
        async with AsyncExitStack() as stack:
            arms: set[Arm] = {"families", "draws", "mutants", "down"}
            return set(await serving_samplers(stack, arms, ROOT / "models" / "sparsesmith-28m", None))

    assert asyncio.run(found()) == {"down"}


def test_the_next_matrix_is_shown_in_the_place_of_each(tmp_path: Path) -> None:
    sources = [Packed(tmp_path, name, "c", "validation") for name in ("a", "a", "b", "b", "c")]
    shown = shown_instead(sources)
    assert {name: other.name for name, other in shown.items()} == {"a": "b", "b": "c", "c": "a"}
    with pytest.raises(InvalidOption, match="at least 2"):
        shown_instead(sources[:2])


def test_arms_are_the_six_of_old_unless_others_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(_options(["p"]).arms) == DEFAULT_ARMS == ("families", "on", "auto", "mutate", "down", "random")
    assert _options(["p", "--arms", "blind", "draws", "families"]).arms == ["families", "draws", "blind"]
    with pytest.raises(SystemExit):
        _options(["p", "--arms", "families", "learned"])
    assert "--learned is missing" in capsys.readouterr().err
    assert _options(["p", "--arms", "families", "learned", "--learned", "f"]).arms == ["families", "learned"]


def test_the_ablations_matrices_are_core_validation_ones_in_a_file_of_names() -> None:
    with (ROOT / "benchmarks" / "split.csv").open(encoding="utf-8", newline="") as rows:
        known = {
            row["name"]: int(row["nnz"])
            for row in csv.DictReader(rows)
            if (row["suite"], row["split"]) == ("core", "validation")
        }
    names = _options(["p", "--names", f"@{ROOT / 'benchmarks' / 'ablation_matrices.txt'}"]).names
    assert len(names) == len(set(names)) == 12
    sizes = [known[name] for name in names]
    assert sizes == sorted(sizes) and (sizes[0], sizes[-1]) == (min(known.values()), max(known.values()))


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
