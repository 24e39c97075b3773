"""An accepted job goes down into its story: what a user's program becomes, and that nothing climbs back."""

import ast
import asyncio
from datetime import UTC, datetime
from pathlib import Path

from services.generator.answers import Answers
from services.generator.channels import Channels
from services.generator.gpus import Gpus
from services.generator.metrics import Metrics
from services.generator.orders import AcceptedJob, EvaluationOrder
from services.generator.search import Sources
from services.generator.search.grading import GradingLimits
from services.generator.search.kernel_cache import TunedKernelCache
from services.generator.search.trials import Trials
from services.generator.tools import Tools
from sparsesmith.operations.problem import Problem
from sparsesmith_proto.api import Graded, JobState
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport
from sparsesmith_proto.kernel import UserWritten
from tests.generator.orders import make_pattern, make_workload
from tests.generator.reports import report_for

GENERATOR = Path(__file__).parents[2] / "services" / "generator"
STORIES = ("generation", "evaluation", "answers", "tools", "jobs", "search")
ROOT_OF_THE_SERVICE = "services.generator.service"


class Graders:
    """Nothing compiles there."""

    def __init__(self) -> None:
        self.asked: list[EvaluationJob] = []

    async def grade(self, job: EvaluationJob) -> EvaluationReport:
        self.asked.append(job)
        return report_for(job)


async def unheard(state: JobState) -> None:
    pass


def test_a_users_program_is_one_candidate_and_its_outcome_the_answer(redis_url: str) -> None:
    channels, graders, metrics = Channels(redis_url), Graders(), Metrics()
    cache, trials = TunedKernelCache(channels.tuned_kernels, 0), Trials(channels.candidates)
    tools = Tools(Sources(None, 16, 16), graders, GradingLimits(2, 60), cache, trials, Gpus(channels.gpus))
    pattern = make_pattern()
    order = EvaluationOrder(workload=make_workload(pattern), program="a program")
    job = AcceptedJob("job-1", datetime.now(UTC), order)
    answers = Answers(tools, lambda: None, metrics)
    state = asyncio.run(answers.answer(job, Problem(order.workload, pattern), unheard))
    assert isinstance(state, Graded)
    assert state.answer.evaluation.outcome.outcome == "compile_failed"
    (asked,) = graders.asked
    assert asked.job_id.startswith("job-1.")
    assert [(each.program, each.origin) for each in asked.candidates] == [("a program", UserWritten())]
    tried = asyncio.run(trials.page("job-1", 0, 10)).candidates
    assert [(each.program, each.outcome) for each in tried] == [("a program", state.answer.evaluation.outcome)]
    assert 'sparsesmith_jobs_ended_total{kind="evaluation",state="graded"} 1.0' in metrics.exposition()[0].decode()


def test_neither_jobs_nor_stories_know_the_composition_root() -> None:
    files = [path for name in STORIES for path in (GENERATOR / name).glob("*.py") or ()]
    files += [GENERATOR / f"{name}.py" for name in STORIES if (GENERATOR / f"{name}.py").is_file()]
    assert len(files) > 10
    for path in files:
        modules = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
        assert ROOT_OF_THE_SERVICE not in modules, path


def test_the_composition_root_runs_no_job() -> None:
    """What a job is done by is not handed down as a method of the service."""
    tree = ast.parse((GENERATOR / "service.py").read_text())
    (service,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    annotations = [
        ast.unparse(each.annotation or ast.Constant("")) for node in ast.walk(service) for each in _arguments(node)
    ]
    assert not [name for name in annotations if "Job" in name or "Order" in name]


def _arguments(node: ast.AST) -> list[ast.arg]:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return []
    return [each for each in node.args.args if each.annotation is not None]
