"""What a model is told: of the problem, of a program that failed, and of what went before."""

import pytest

from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.catalogue import our_tasks
from sparsesmith.program.extraction import extract_program
from sparsesmith.program.program import parse_program
from sparsesmith.prompts.brief import Gpu, brief
from sparsesmith.prompts.dialogue import Turn, dialogue
from sparsesmith.prompts.feedback import MAX_LOG_CHARACTERS, failure
from sparsesmith_proto.kernel import CompileFailed, Crashed, Mismatch, Outcome, Rejected, TimedOut, Workload
from tests.generator.orders import make_pattern, make_workload

H200 = Gpu("sm_90", "NVIDIA H200", 132, 4260.0)


def brief_of(task: str, **changes: object) -> str:
    workload = {"operation": task, "element_type": "float32", "axes": dict(operation_named(task).trial), **changes}
    return brief(Problem(Workload.model_validate(workload)), H200)


@pytest.mark.parametrize("task", [task.name for task in our_tasks()])
def test_a_task_is_told_whole_and_its_naive_program_is_one(task: str) -> None:
    told, operation = brief_of(task), operation_named(task)
    for operand in operation.operands:
        assert f"- {operand.name}, " in told
    for name, size in operation.trial.items():
        assert f"{name}={size}" in told
    assert "NVIDIA H200" in told
    assert "What counts as right" in told
    assert parse_program(extract_program(told.split("to start from:")[1]), task, "float32").launches


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("transpose", "- y: exact, every entry"),
        ("dot", "- total: every entry within about 1e-05 times"),
        ("least_squares", "residuals are judged"),
        ("reverse", "changed in place"),
        ("histogram", "int32"),
    ],
)
def test_how_far_results_may_be_off_is_the_tasks_own_word(task: str, words: str) -> None:
    assert words in brief_of(task)


def test_equal_bits_are_told_where_they_are_asked_for() -> None:
    assert "equal bits" in brief_of("dot", deterministic=True)
    assert "equal bits" not in brief_of("dot")


def test_a_matrix_is_told_by_formats_and_numbers_and_no_value() -> None:
    pattern = make_pattern()
    told = brief(Problem(make_workload(pattern), pattern), H200)
    for words in ("csr_tiles", f"{pattern.nnz} nonzeros", "NVIDIA H200", "within 1e-05 times"):
        assert words in told


FAILURES: dict[str, tuple[Outcome, list[str]]] = {
    "a compiler's lines": (
        CompileFailed(log="program.cu(2): error: expected a ';'"),
        ["It does not compile", "expected a ';'", "line 2: float sum"],
    ),
    "a refusal": (Rejected(message="line 1: unknown directive"), ["no legal program", "line 1: //@ task dot"]),
    "a mismatch": (Mismatch(message="total[0] is 1, should be 2"), ["results are wrong", "total[0] is 1"]),
    "a crash": (Crashed(message="out of bounds, line 3"), ["crashed", "line 3: }"]),
    "time": (TimedOut(stage="run", limit_s=2, message="not done"), ["too long (run, limit 2 s)", "not done"]),
}


@pytest.mark.parametrize("what", FAILURES)
def test_a_failure_is_told_with_the_lines_that_it_names(what: str) -> None:
    outcome, words = FAILURES[what]
    told = failure("//@ task dot\nfloat sum\n}\n", outcome)
    assert all(each in told for each in words)
    assert "repaired" in told


def test_a_long_log_is_cut() -> None:
    assert len(failure("p", CompileFailed(log="x" * 100_000))) < MAX_LOG_CHARACTERS + 300


def test_of_what_went_before_the_newest_stays_within_the_characters() -> None:
    turns = [Turn(f"program {number}", "told" * 10) for number in range(4)]
    texts = [line.text for line in dialogue("brief", turns, 120)]
    assert texts[0] == "brief"
    assert [number for number in range(4) if any(f"program {number}" in text for text in texts)] == [2, 3]
    assert len(dialogue("brief", turns, 0)) == 3
    assert [line.role for line in dialogue("brief", turns[:1], 0)] == ["user", "assistant", "user"]
