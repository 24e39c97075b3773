"""A policy of which a share of the groups explores is judged by the other groups: a real service, a toy policy."""

from pathlib import Path

import pytest

from services.trainer.course import toy
from services.trainer.course.course import environment_of, temperature_of
from services.trainer.course.judging import FRESH, MAX_DRAWS, JudgingOptions, judge
from sparsesmith.cli.local_stack import wait_until_ready
from sparsesmith.client import Client
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.stack import Stack, StackOptions
from sparsesmith_proto.api import FromPolicy

pytestmark = [pytest.mark.stack, pytest.mark.timeout(900)]

EXPLORES = {"EXPLORING_SHARE": "0.5", "EXPLORING_MIN_P": "0.125"}
PLAIN, WARM = (1.0, 0.0), (1.2, 0.125)
"""Temperature and min-p."""


def sampled_as(client: Client, jobs: int) -> list[set[tuple[float, float]]]:
    """Temperatures and min-p of the last so many jobs' samples, the newest first."""
    listed = client.jobs(limit=jobs).jobs
    origins = [[each.origin for each in client.candidates(job.job_id)] for job in listed]
    return [
        {(origin.temperature, origin.min_p) for origin in each if isinstance(origin, FromPolicy)} for each in origins
    ]


def test_groups_that_explore_are_not_judged(tmp_path: Path) -> None:
    toy.make_policy(tmp_path)
    course, lesson, told = toy.course(tmp_path, 60.0), toy.probes()[0], list[str]()
    held_out = tmp_path / "held-out"
    held_out.write_text("")
    environment = environment_of(course, held_out, 1)
    environment |= {f"SPARSESMITH_GENERATOR_{name}": value for name, value in EXPLORES.items()}
    stack_options = StackOptions(tmp_path, free_port(), 1, environment=environment)
    with Stack(stack_options) as stack, Client(stack.url, FRESH) as client:
        wait_until_ready(client, stack, is_whole=True)
        assert temperature_of(stack) == 1.0
        (group,) = judge(stack.url, [lesson], JudgingOptions(samples=4), told.append)
        assert len(group.rewards) == 4
        assert sampled_as(client, 1) == [{PLAIN}]
        assert judge(stack.url, [lesson], JudgingOptions(samples=4, temperature=1.2), told.append) == []
        assert told == [
            f"{lesson.name} is not judged: {MAX_DRAWS} times some samples were not of temperature 1.2 and min-p 0, at "
            f"last of {max(sampled_as(client, 1)[0])}"
        ], "groups of that temperature leave out tokens"
        seen = sampled_as(client, MAX_DRAWS)
        assert {PLAIN} in seen and {WARM} in seen
