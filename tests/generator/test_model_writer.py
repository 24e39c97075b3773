"""`refine` with a language model behind an address: what it is told, what comes of it, and what is accounted."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from services.generator.orders import KernelOrder
from services.generator.search import STRATEGIES, Sources, Standing
from services.generator.search.grading import GradingLimits, graded
from services.generator.task import TuningTask
from services.generator.writing import Writers
from services.generator.writing.endpoint import Endpoint
from services.generator.writing.model import ModelOptions
from sparsesmith.errors import InvalidOption
from sparsesmith.operations import Problem
from sparsesmith.prompts.brief import Gpu
from sparsesmith_proto.api import Budget, SourceReport, TuningOptions
from sparsesmith_proto.kernel import (
    Candidate,
    CompileFailed,
    Evaluation,
    Mismatch,
    Outcome,
    Rejected,
    Workload,
    Written,
)
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import make_passed, make_timing
from tests.generator.scripted_endpoint import Messages, Reply, Says, Silence, Status, endpoint_that
from tests.generator.test_endpoint import make_options
from tests.generator.test_mutate_search import Graders

PROGRAM = """//@ task dot
//@ launch add grid=1 block=32
extern "C" __global__ void add(int n, const float* x, const float* y, float* total) {{
  {body}
}}
"""


def program(body: str) -> str:
    return PROGRAM.format(body=body)


def fenced(body: str) -> Says:
    return Says(f"Here it is.\n```cuda\n{program(body)}```\nThat is all.")


def refining_dot(candidates: int = 60, **loop: Any) -> TuningTask:
    workload = Workload(operation="dot", element_type="float32", axes={"n": 4096})
    budget = Budget(candidates=candidates, seconds=50)
    chosen = {"children": 1, "generations": 3, "beam": 1, "writer": "endpoint", **loop}
    options = TuningOptions(operation="dot", axes={"n": 4096}, search="refine", refine=chosen, budget=budget)
    return TuningTask("job-1", "job-1.r", KernelOrder(workload=workload, options=options), Problem(workload))


def by_words(candidate: Candidate) -> Outcome:
    """What a program says of itself; first programs take 8 us."""
    if "__global__" not in candidate.program:
        return Rejected(message="the text holds no kernel program: no line begins with //@")
    if "broken" in candidate.program:
        return CompileFailed(log='program.cu(4): error: identifier "broken" is undefined')
    if "wrong" in candidate.program:
        return Mismatch(message="input uniform: total is 1, should be 2")
    found = re.search(r"takes (\d+)", candidate.program)
    return make_passed(make_timing(float(found[1]) if found else 8.0))


def refined(
    replies: Callable[[Messages], Reply], task: TuningTask, *, history_characters: int = 20_000, **options: Any
) -> tuple[list[Evaluation], SourceReport, list[Messages]]:
    """What the endpoint wrote, graded; its account; what it was asked."""
    graders = Graders(by_words)

    async def run(url: str) -> Standing:
        endpoint = Endpoint(make_options(url, **{"retries": 0, **options}))
        writers = Writers([endpoint], ModelOptions(Gpu("sm_90", num_sms=132), history_characters))
        standing, sources = Standing(), Sources(None, 16, 16, writers=writers)
        batches = STRATEGIES["refine"](task, sources, task.order.options.budget.candidates, standing)
        async for report in graded(batches, task, graders, GradingLimits(2, 1), standing.lost):
            standing.add(report)
        await endpoint.close()
        return standing

    with endpoint_that(replies) as address:
        standing = asyncio.run(asyncio.wait_for(run(address.url), 60))
    written = [each for each in graders.evaluations if isinstance(each.candidate.origin, Written)]
    (source,) = [each for each in standing.sources() if each.source == "endpoint"]
    return written, source, [body["messages"] for body in address.asked]


def origin_of(evaluation: Evaluation) -> Written:
    assert isinstance(evaluation.candidate.origin, Written)
    return evaluation.candidate.origin


def test_a_broken_program_is_repaired_and_then_improved_on() -> None:
    def replies(messages: Messages) -> Reply:
        told = messages[-1]["content"]
        if len(messages) == 1:
            return fenced("broken;")
        if "does not compile" in told:
            return fenced("total[0] = 1;  // takes 6")
        return fenced(f"total[0] = 2;  // takes {5 if 'takes 6 us' in told else 7}")

    written, source, asked = refined(replies, refining_dot())
    by_generation = {(origin_of(each).generation, each.outcome.outcome) for each in written}
    assert {(1, "compile_failed"), (2, "passed"), (3, "passed")} <= by_generation
    repairs = [messages[-1]["content"] for messages in asked if "does not compile" in messages[-1]["content"]]
    assert len(repairs) == 1
    assert 'identifier "broken" is undefined' in repairs[0]
    assert "line 4: broken;" in repairs[0]
    assert source.writing is not None
    assert (source.writing.repairs, source.writing.repaired) == (1, 1)
    assert source.writing.answers == len(written) == len(asked)
    assert source.writing.prompt_tokens == 100 * len(asked)
    assert source.writing.completion_tokens == 10 * len(asked)
    assert source.gain > 0
    parents = {each.candidate.candidate_id: origin_of(each).parent for each in written}
    improved = next(each for each in written if origin_of(each).generation == 3)
    repaired = origin_of(improved).parent
    assert repaired is not None
    assert parents[parents[repaired] or ""] is None


def test_one_chain_begins_with_the_words_the_other_with_the_fastest_first_program() -> None:
    written, _, asked = refined(lambda messages: fenced(f"// takes {len(str(messages)) % 7 + 9}"), refining_dot())
    first = [origin_of(each) for each in written if origin_of(each).generation == 1]
    assert {origin.parent is None for origin in first} == {True, False}
    (brief,) = next(messages for messages in asked if len(messages) == 1)
    for told in ("total = sum(x[i] y[i])", "x, float32 [n=4096], read only", "//@ task dot", "132 multiprocessors"):
        assert told in brief["content"]


def test_a_mismatch_comes_back_with_its_words_and_two_repairs_in_a_row_are_all() -> None:
    task = refining_dot(children=1, generations=8, beam=1)
    written, source, asked = refined(lambda messages: fenced(f"wrong; // {len(messages)}"), task)
    told = [messages[-1]["content"] for messages in asked if len(messages) > 1]
    assert any("results are wrong" in words and "total is 1, should be 2" in words for words in told)
    assert max(origin_of(each).generation for each in written) == 3
    assert source.writing is not None
    assert (source.writing.repairs, source.writing.repaired) == (4, 0)


def test_nonsense_is_refused_by_name_and_told_so() -> None:
    def replies(messages: Messages) -> Reply:
        is_told = "no kernel program" in messages[-1]["content"]
        return fenced("// takes 4") if is_told else Says("I would rather talk about the weather.")

    written, source, _ = refined(replies, refining_dot())
    assert {each.outcome.outcome for each in written} == {"rejected", "passed"}
    assert source.writing is not None
    assert source.writing.repaired >= 1


@pytest.mark.parametrize(
    ("reply", "reason", "silence_s"),
    [
        (Silence(0.6), "silence", 0.2),
        (Status(429), "status 429", 5.0),
        (Says("half", ends=False), "cut", 5.0),
    ],
)
def test_a_writer_that_does_not_answer_costs_its_own_candidates_alone(
    reply: Reply, reason: str, silence_s: float
) -> None:
    task = refining_dot(children=8, generations=3, beam=1)
    written, source, asked = refined(lambda messages: reply, task, silence_s=silence_s)
    assert written == []
    assert source.writing is not None
    assert set(source.writing.failures) == {reason}
    assert source.writing.answers == 0
    assert len(asked) < 16


def test_the_loop_of_fsr_asks_five_times_for_each_of_two_chains_down_to_five_answers() -> None:
    numbers = iter(range(10_000))

    def replies(messages: Messages) -> Reply:
        return fenced(f"// number {next(numbers)} takes {max(1, 7 - len(messages) // 2)}")

    task = refining_dot(candidates=200, preset="fsr", children=5, generations=5, beam=1)
    written, source, _ = refined(replies, task)
    assert max(origin_of(each).generation for each in written) == 5
    assert source.proposed == len(written) <= 60
    of_words = [each for each in written if origin_of(each).parent is None]
    assert len(of_words) == 5


def test_the_history_stays_within_its_characters_and_the_program_asked_about_is_always_there() -> None:
    def replies(messages: Messages) -> Reply:
        return fenced(f"// {'long ' * 100} takes {max(1, 7 - len(messages))} {len(messages)}")

    _, _, asked = refined(replies, refining_dot(generations=5), history_characters=3000)
    deep = [messages for messages in asked if len(messages) > 1]
    assert deep
    for messages in deep:
        assert messages[-2]["role"] == "assistant"
        before = messages[1:-2]
        assert sum(len(line["content"]) for line in before) <= 3000
    _, _, short = refined(replies, refining_dot(generations=5), history_characters=0)
    assert {len(messages) for messages in short} == {1, 3}


def test_each_level_of_feedback_tells_more() -> None:
    def told(feedback: str) -> str:
        numbers = iter(range(1000))
        _, _, asked = refined(
            lambda messages: fenced(f"// takes {10 + next(numbers)}"), refining_dot(generations=1, feedback=feedback)
        )
        return next(messages[-1]["content"] for messages in asked if len(messages) > 1)

    latency, profile, suggestions = map(told, ("latency", "profile", "suggestions"))
    assert "takes 8 us (measured)" in latency
    assert "registers" not in latency
    assert "32 registers a thread" in profile
    assert "You may try" not in profile
    assert "You may try" in suggestions


def test_suggestions_are_accounted_by_name() -> None:
    numbers = iter(range(1000))
    task = refining_dot(children=2, generations=1)
    written, source, _ = refined(lambda messages: fenced(f"// takes {3 + next(numbers)}"), task)
    assert source.writing is not None
    made = [name for each in written for name in origin_of(each).suggestions]
    assert made
    assert {each.name: each.made for each in source.writing.suggestions} == {name: made.count(name) for name in made}
    assert any(each.faster and 0 < each.gain < 1 for each in source.writing.suggestions)


def test_a_writer_that_is_gone_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"refine\.writer 'endpoint' is none of this service's \(it has: mutate\)"):
        Writers().of(refining_dot())


def test_a_request_names_its_writer_and_the_answer_tells_what_it_cost(redis_url: str) -> None:
    numbers = iter(range(1000))
    request: dict[str, Any] = {
        "task": "dot",
        "axes": {"n": 4096},
        "search": "refine",
        "refine": {"writer": "endpoint", "children": 1, "generations": 1, "beam": 1},
        "budget": {"candidates": 12, "seconds": 30},
    }
    with endpoint_that(lambda messages: fenced(f"// {next(numbers)}")) as address:
        settings: dict[str, Any] = {
            "endpoint_url": address.url,
            "endpoint_model": "kernel-writer-1",
            "endpoint_retries": 0,
        }
        with live_service(redis_url, Evaluators(), **settings) as client:
            unknown = client.post("/v1/kernels", json={**request, "refine": {"writer": "text"}}).json()
            answer = client.post("/v1/kernels", json=request, headers={"Prefer": "wait=25"}).json()
            page = client.get(f"/v1/kernels/{answer['job_id']}/candidates").json()
    assert (unknown["status"], unknown["field"], unknown["value"]) == (422, "refine.writer", "text")
    assert unknown["limit"] == "mutate, endpoint"
    sources = {each["source"]: each for each in answer["status"]["report"]["search"]["sources"]}
    assert sources["endpoint"]["writing"]["model"] == "kernel-writer-1"
    assert sources["endpoint"]["writing"]["answers"] == sources["endpoint"]["proposed"] == 2
    origins = [each["origin"] for each in page["candidates"] if each["origin"]["kind"] == "written"]
    assert {origin["writer"] for origin in origins} == {"endpoint"}
