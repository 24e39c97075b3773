"""A policy of which a share of the groups explores is judged by the other groups: a real service, a toy policy."""

from dataclasses import replace
from pathlib import Path

import pytest

from services.generator.settings import GeneratorSettings
from services.trainer.course import toy
from services.trainer.course.course import environment_of
from services.trainer.course.judging import FRESH, MAX_DRAWS, JudgingOptions, judge, sampled
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client import Client
from sparsesmith.errors import Unavailable
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import FromPolicy
from tests.slow import of_minutes

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900), of_minutes]

EXPLORES = {"SPARSESMITH_GENERATOR_EXPLORING_SHARE": "0.5", "SPARSESMITH_GENERATOR_EXPLORING_MIN_P": "0.125"}
PLAIN, WARM = (1.0, 0.0), (1.2, 0.125)
"""Temperature and min-p."""


def sampled_as(client: Client) -> list[set[tuple[float | None, float]]]:
    """Temperatures and min-p of all jobs' samples."""
    listed = client.jobs(limit=100).jobs
    origins = [[each.origin for each in client.candidates(job.job_id)] for job in listed]
    return [
        {(origin.temperature, origin.min_p) for origin in each if isinstance(origin, FromPolicy)} for each in origins
    ]


def test_groups_that_explore_are_not_judged(tmp_path: Path) -> None:
    toy.make_policy(tmp_path)
    held_out = tmp_path / "held-out"
    held_out.write_text("")
    course = replace(toy.course(tmp_path, 60.0), services=EXPLORES)
    environment = environment_of(course, held_out, 1)
    assert float(environment["SPARSESMITH_GENERATOR_TEMPERATURE"]) == GeneratorSettings().temperature == 1.0
    with Stack(StackOptions(tmp_path, free_port(), 1, environment=environment)) as stack, Client(stack.url) as client:
        wait_until_ready(client, stack, is_whole=True)
        told, options = list[str](), JudgingOptions(samples=4, temperature=1.0, clients=1, seconds=120.0)
        while {WARM} not in (seen := sampled_as(client)):
            groups = judge(stack.url, toy.probes(), options, told.append)
            assert [len(group.rewards) for group in groups] == [4, 4, 4]
            assert {group.temperature for group in groups} == {1.0}
        assert {PLAIN} in seen and told == []
        lesson = toy.probes()[0]
        assert judge(stack.url, [lesson], replace(options, temperature=1.2), told.append) == []
        assert len(sampled_as(client)) == len(seen) + MAX_DRAWS, "groups of that temperature leave out tokens"
        why = "no group was sampled at temperature 1.2 and with all tokens"
        assert len(told) == 1 and told[0].startswith(f"{lesson.name} is not judged: {why}")
        with Client(stack.url, FRESH) as asking, pytest.raises(Unavailable, match=why):
            sampled(asking, lesson, replace(options, temperature=1.2), is_late=lambda: True)
        assert len(sampled_as(client)) == len(seen) + MAX_DRAWS + 1, "none is begun after the time is over"
