"""Examples of three kinds: which texts a policy is shown, how often, and what is left out."""

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import Tokenizer

from services.trainer.offline.edits import changed_lines
from services.trainer.offline.example_file import read_examples, write_examples
from services.trainer.offline.examples import Example, ExampleRules, Examples
from services.trainer.offline.faults import FAULTS, broken, refusal
from services.trainer.offline.harvests import Harvested
from services.trainer.offline.parts import PARTS, program_tokens
from services.trainer.offline.records import Rendering
from services.trainer.offline.targets import (
    Improvement,
    Repair,
    TargetRule,
    WorkloadKey,
    WorkloadTargets,
    workload_targets,
)
from sparsesmith.families import propose
from sparsesmith.program.facts import Circumstances
from sparsesmith.program.numbers import is_open
from tests.families import golden
from tests.trainer.conftest import make_program, make_record

KEY = WorkloadKey("tridiagonal", "spmv", "float32", 1)
PATTERN = golden.PATTERNS["five points"]()


def make_workload(**changes: Any) -> WorkloadTargets:
    """4 lanes are the fastest, 32 the slowest."""
    records = [make_record(program=make_program(lanes), median_us=us) for lanes, us in ((4, 2.0), (8, 2.1), (32, 3.0))]
    (workload,) = workload_targets(records, TargetRule(slowest=1.15))
    return WorkloadTargets(**{**vars(workload), **changes})


def examples_of(workload: WorkloadTargets, tokenizer: Tokenizer, count: int, **rules: Any) -> list[Example]:
    examples = Examples([workload], tokenizer, ExampleRules(**rules))
    return [each for step in range(count) for each in examples.batch(step, 1)]


def shown(example: Example, tokenizer: Tokenizer) -> tuple[str, str]:
    """What stands before the program, and the program."""
    before = tokenizer.decode(example.prompt_ids, skip_special_tokens=False)
    return str(before), str(tokenizer.decode(example.program.ids))


def test_fast_programs_are_written_more_often_than_slower_ones(tokenizer: Tokenizer) -> None:
    written = examples_of(make_workload(), tokenizer, 200, improve_share=0.0, repair_share=0.0)
    assert {each.kind for each in written} == {"write"}
    assert {shown(each, tokenizer)[0] for each in written} == {"<bos>"}
    counts = Counter(shown(each, tokenizer)[1] for each in written)
    assert counts[make_program(4)] > 1.5 * counts[make_program(8)] > 0
    assert counts[make_program(32)] == 0


def test_an_improving_example_shows_a_slower_program_by_its_names(tokenizer: Tokenizer) -> None:
    named = "//@ let SLOWER = row_length_max\n" + make_program(32)
    records = [
        make_record(program=make_program(4), median_us=2.0),
        make_record(program=named, plain=make_program(32), median_us=3.0),
    ]
    (workload,) = workload_targets(records, TargetRule())
    assert [each.graded for each in workload.measured] == [make_program(4), make_program(32)]
    (example,) = examples_of(workload, tokenizer, 1, improve_share=1.0)
    expected = f"<parent>{named}<report>passed 3 us speedup 1.33<bos>", make_program(4)
    assert shown(example, tokenizer) == expected


def test_an_improving_example_shows_a_slower_program_and_its_report(tokenizer: Tokenizer) -> None:
    improving = examples_of(make_workload(), tokenizer, 30, improve_share=1.0, repair_share=0.0)
    assert {each.kind for each in improving} == {"improve"}
    assert {shown(each, tokenizer) for each in improving} <= {
        (f"<parent>{make_program(32)}<report>passed 3 us speedup 1.33<bos>", make_program(4)),
        (f"<parent>{make_program(8)}<report>passed 2.1 us speedup 1.9<bos>", make_program(4)),
        (f"<parent>{make_program(32)}<report>passed 3 us speedup 1.33<bos>", make_program(8)),
    }


def test_without_a_baseline_a_report_gives_the_time_alone(tokenizer: Tokenizer) -> None:
    (example,) = examples_of(make_workload(best_baseline_us=None), tokenizer, 1, improve_share=1.0, repair_share=0.0)
    assert shown(example, tokenizer)[0].endswith((" us<bos>", "passed 3 us<bos>", "passed 2.1 us<bos>"))


def test_a_larger_gain_is_shown_more_often(tokenizer: Tokenizer) -> None:
    improvements = (
        Improvement(make_program(16), "passed 3 us", make_program(2), gain=1.30),
        Improvement(make_program(16), "passed 3 us", make_program(32), gain=1.03),
    )
    workload = make_workload(improvements=improvements)
    changed = examples_of(workload, tokenizer, 200, improve_share=1.0, harvest_share=1.0)
    counts = Counter(shown(each, tokenizer) for each in changed)
    before = f"<parent>{make_program(16)}<report>passed 3 us<bos>"
    assert set(counts) == {(before, make_program(2)), (before, make_program(32))}
    assert counts[before, make_program(2)] > 5 * counts[before, make_program(32)]


def test_a_repairing_example_shows_what_failed_and_why(tokenizer: Tokenizer) -> None:
    workload = make_workload(repairs=(Repair(make_program(2), "mismatch row 3 is wrong", make_program(4)),))
    (example,) = examples_of(workload, tokenizer, 1, improve_share=0.0, repair_share=1.0)
    expected = f"<parent>{make_program(2)}<report>mismatch row 3 is wrong<bos>", make_program(4)
    assert example.kind == "repair"
    assert shown(example, tokenizer) == expected


def test_a_workload_without_a_kind_of_example_gives_a_program_to_write(tokenizer: Tokenizer) -> None:
    (workload,) = workload_targets([make_record()], TargetRule())
    kinds = {each.kind for each in examples_of(workload, tokenizer, 20, improve_share=0.5, repair_share=0.5)}
    assert kinds == {"write"}


def test_targets_that_are_too_long_are_left_out_and_counted(tokenizer: Tokenizer) -> None:
    examples = Examples([make_workload()], tokenizer, ExampleRules(max_program_tokens=10))
    assert len(examples) == 0
    assert examples.left_out == {"targets of more than 10 tokens": 2}


def test_a_batch_is_a_function_of_its_number(tokenizer: Tokenizer) -> None:
    def texts(step: int) -> list[tuple[str, str]]:
        examples = Examples([make_workload()] * 5, tokenizer, ExampleRules(improve_share=0.5), seed=3)
        return [shown(each, tokenizer) for each in examples.batch(step, 2)]

    assert [texts(step) for step in range(6)] == [texts(step) for step in range(6)]
    assert [len(texts(step)) for step in range(6)] == [2, 2, 1, 2, 2, 1]


def test_tokens_are_told_apart_by_part(tokenizer: Tokenizer) -> None:
    tokens = program_tokens(tokenizer, make_program(4))
    texts: dict[str, str] = dict.fromkeys(PARTS, "")
    for token, part in zip(tokens.ids, tokens.parts, strict=True):
        texts[PARTS[part]] += tokenizer.decode([token])
    directives = "".join(line + "\n" for line in make_program(4).split("\n") if line.startswith("//@"))
    assert texts["directives"].rstrip() == directives.rstrip()
    assert texts["numbers"].isdigit()
    assert not any(character.isdigit() for character in texts["rest"].replace("float32", ""))


def harvest_lines(**changes: Any) -> list[dict[str, Any]]:
    problem = dict(vars(KEY))
    parent = {"kind": "parent", **problem, "number": 0, "family": "csr_vector", "program": make_program(4)}
    child = changed_lines(make_program(4), make_program(8))
    return [
        {"kind": "harvest", "device": {}},
        {**parent, "tuned_us": 2.2, "best_baseline_us": 4.0},
        {"kind": "mutant", **problem, "parent": 0, "lines": child, "outcome": "passed", "final_us": 2.0, "gain": 1.1}
        | changes,
    ]


def test_a_change_that_paid_is_an_improvement_on_its_parent() -> None:
    harvested = Harvested()
    harvested.add(harvest_lines())
    expected = Improvement(make_program(4), "passed 2.2 us speedup 1.82", make_program(8), 1.1)
    assert harvested.improvements == {KEY: [expected]}
    assert [each.median_us for each in harvested.measured[KEY]] == [2.2, 2.0]
    assert harvested.baselines_us == {KEY: 4.0}


def named_harvest(edit: Callable[[str], str], **changes: Any) -> tuple[Harvested, str, str, str]:
    """Of a program of `row_bins` and one child of it; with the parent as it is named, and both as they were timed."""
    found = propose(PATTERN, "spmv", "float32", limit=200)
    instance = next(each for each in found if each.family == "row_bins")
    child = edit(instance.program)
    assert child != instance.program
    head, parent, mutant = harvest_lines(lines=changed_lines(instance.program, child), **changes)
    parent |= {"family": "row_bins", "parameters": instance.parameters, "program": instance.program}
    harvested = Harvested(Rendering("open", {"tridiagonal": PATTERN}.__getitem__))
    harvested.add([head, parent, mutant])
    return harvested, instance.written, instance.program, child


def test_parent_and_child_of_a_harvest_are_named_together() -> None:
    harvested, named, plain, child = named_harvest(lambda text: text.replace("= sum;", "= sum + 0;"))
    (improvement,) = harvested.improvements[KEY]
    assert is_open(named)
    assert improvement.parent == named
    assert improvement.child == named.replace("= sum;", "= sum + 0;")
    assert [each.program for each in harvested.measured[KEY]] == [named, improvement.child]
    assert [each.graded for each in harvested.measured[KEY]] == [plain, child]
    assert harvested.pairs == {"named": 1}


def test_what_failed_in_a_harvest_is_named_unless_its_message_counts_lines() -> None:
    def edit(text: str) -> str:
        return text.replace("= sum;", "= sum + 1;")

    harvested, named, plain, child = named_harvest(edit, outcome="mismatch", message="wrong")
    assert harvested.repairs == {KEY: [Repair(edit(named), "mismatch wrong", named)]}
    harvested, _, _, _ = named_harvest(edit, outcome="compile_failed", message="program.cu(3): error")
    assert harvested.repairs == {KEY: [Repair(child, "compile_failed program.cu(3): error", plain)]}
    assert harvested.pairs == {"plain": 1}


def test_a_change_that_does_not_fit_the_names_stays_plain_with_its_parent() -> None:
    harvested, _, plain, child = named_harvest(lambda text: "//@ let LIMITS = nnz\n" + text)
    (improvement,) = harvested.improvements[KEY]
    assert (improvement.parent, improvement.child) == (plain, child)
    assert harvested.pairs == {"not named": 1}


def test_a_change_that_left_its_child_far_behind_counts_by_its_brief_time() -> None:
    lines = harvest_lines(gain=0.5, brief_us=4.4)
    del lines[2]["final_us"]
    harvested = Harvested()
    harvested.add(lines)
    assert harvested.improvements == {}
    assert [each.median_us for each in harvested.measured[KEY]] == [2.2, 4.4]


def test_a_change_that_failed_is_to_be_repaired() -> None:
    harvested = Harvested()
    harvested.add(harvest_lines(outcome="mismatch", message="row 3\n is wrong"))
    assert harvested.repairs == {KEY: [Repair(make_program(8), "mismatch row 3 is wrong", make_program(4))]}
    assert harvested.improvements == {}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gain": 0.0}, "mutant: a time or a gain is no positive number"),
        ({"gain": math.nan}, "mutant: a time or a gain is no positive number"),
        ({"final_us": math.inf}, "mutant: a time or a gain is no positive number"),
        ({"final_us": None}, "mutant: a time or a gain is no positive number"),
        ({"parent": 7}, "mutant: its parent is not there"),
    ],
)
def test_lines_of_a_harvest_that_teach_nothing_are_counted(changes: dict[str, Any], reason: str) -> None:
    harvested = Harvested()
    harvested.add(harvest_lines(**changes))
    assert harvested.left_out == {reason: 1}
    assert harvested.improvements == {}


def test_a_change_that_paid_nothing_is_only_a_measurement() -> None:
    harvested = Harvested()
    harvested.add(harvest_lines(gain=0.99))
    assert harvested.improvements == {}
    assert harvested.left_out == {}
    assert len(harvested.measured[KEY]) == 2


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_program_with_a_fault_is_refused_in_the_contracts_own_words(name: str) -> None:
    """Each kind of fault breaks one of these programs at least."""
    circumstances = Circumstances(PATTERN, 1, 132)
    opened = "//@ let width = row_length_max\n" + make_program(4).replace("grid=", "grid=width*")
    assert refusal(opened, "spmv", "float32", circumstances) is None
    for seed in range(20):
        text = FAULTS[name](opened, Random(seed))
        if text is not None and (message := refusal(text, "spmv", "float32", circumstances)) is not None:
            assert text != opened
            assert message
            return
    pytest.fail(f"{name} never broke the program")


def test_what_is_broken_on_purpose_is_the_same_for_the_same_seed() -> None:
    circumstances = Circumstances(PATTERN, 1, 132)
    found = [broken(make_program(4), "spmv", "float32", circumstances, Random(5)) for _ in range(2)]
    assert found[0] == found[1] is not None


def test_an_example_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    workload = make_workload(
        improvements=(Improvement("a", "passed 3 us", "b", 1.1),), repairs=(Repair("c", "crashed", "d"),)
    )
    write_examples(tmp_path / "examples.jsonl.xz", {"numbers": "open"}, [("validation", workload)])
    read = read_examples(tmp_path / "examples.jsonl.xz", TargetRule())
    assert read.workloads == {"train": [], "validation": [workload]}
    assert read.head["numbers"] == "open"


def test_an_example_file_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps({"kind": "examples", "version": 0}) + "\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"old\.jsonl holds no examples of version 1"):
        read_examples(path, TargetRule())
