"""What the benchmark of tasks asks for, and what it says of what it was told."""

from dataclasses import replace

import pytest

from benchmarks.tasks import Row, problems, summary
from sparsesmith.operations.catalogue import our_tasks

ROW = Row("relu", {"n": 1000}, "float32", 8000, 1000, naive_us=6, best_us=3, mutated_us=2, outcomes={"passed": 9})


def test_every_task_is_asked_for_at_its_sizes() -> None:
    assert [problem.workload.axes for problem in problems(["top_k"], "trial", "float32")] == [{"n": 1003, "k": 37}]
    published = list(problems([], "published", "float64"))
    assert len(published) == 5 * len(our_tasks())
    assert {problem.element_type for problem in published} == {"float64"}


def test_a_task_is_solved_where_it_is_at_every_size_that_was_graded() -> None:
    failed = replace(ROW, task="sort", best_us=None, mutated_us=None)
    left_out = replace(ROW, task="matmul", naive_us=None, best_us=None, mutated_us=None, left_out="too large")
    told = summary([ROW, replace(ROW, task="sort"), failed, left_out])
    assert (told["solved"], told["not_solved"], told["sizes_left_out"]) == (["relu"], ["sort"], 1)


def test_ratios_are_geometric_means_over_sizes() -> None:
    told = summary([ROW, replace(ROW, best_us=1.5, mutated_us=1.5)])
    assert told["over_naive"] == pytest.approx(8**0.5, rel=1e-3)
    assert told["mutated_over_best"] == pytest.approx(1.5**0.5, rel=1e-3)
