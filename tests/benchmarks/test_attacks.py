"""The attacker's grammar: reproducible, all of it in use, beside twins that are legal; what passes is told apart."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from benchmarks.judging.attacker import Campaign, Ended, note
from benchmarks.judging.hostile.attempts import HOSTS, Attempt, attempt, names_of
from benchmarks.judging.hostile.deeds import HIDING_PLACES, KEYS
from benchmarks.judging.hostile.detours import DETOURS
from benchmarks.judging.hostile.disguises import DISGUISES
from benchmarks.judging.hostile.twins import Comparison, Twins
from services.evaluator.compiling.compiler import Compiler
from sparsesmith.errors import Unavailable
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload

ATTEMPTS = [attempt(number) for number in range(3000)]


def test_an_attempt_is_the_same_for_the_same_number() -> None:
    assert [attempt(number) for number in range(20)] == ATTEMPTS[:20]


def test_every_part_of_the_grammar_is_tried() -> None:
    places, keys = {f"kept in {name}" for name in HIDING_PLACES}, {f"by {name}" for name in KEYS}
    assert set(DETOURS) | set(DISGUISES) | places | keys <= names_of(ATTEMPTS)
    assert {each.kind for each in ATTEMPTS} == {"forbidden", "skips", "cuts", "undefined", "mutant"}


def test_twins_are_within_the_contract_and_differ_from_their_attempts() -> None:
    for tried in ATTEMPTS[:400]:
        parse_program(tried.twin, "spmv", "float32")
        assert tried.program != tried.twin or tried.kind == "mutant"


def test_what_takes_the_place_of_work_stands_before_it() -> None:
    for tried in (each for each in ATTEMPTS if each.kind == "skips" and each.name.endswith("plain")):
        assert tried.program.index("done = true") < tried.program.index("sum += values[j]")


@pytest.fixture(scope="module")
def twins() -> Iterator[Twins]:
    random = scipy.sparse.random(100, 101, 0.1, format="csr", random_state=np.random.default_rng(1))
    pattern = pattern_from_scipy(random)
    workload = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    try:
        with Compiler(1, timeout_s=120) as compiler:
            yield Twins(workload, pattern, compiler)
    except Unavailable as missing:
        pytest.skip(missing.message)


def beside(twins: Twins, program: str) -> Comparison:
    return twins.compared(program, honest())


def honest() -> str:
    return next(each.twin for each in ATTEMPTS if each.twin.startswith(f"//@ format {HOSTS[0].format}\n"))


def test_a_program_that_does_as_its_twin_does_has_done_the_whole_work(twins: Twins) -> None:
    assert beside(twins, honest().replace("float sum = 0", "float sum = 0.0f")) == Comparison("whole")


def test_a_program_that_executes_a_part_of_its_twins_instructions_has_done_less(twins: Twins) -> None:
    done = "bool done = false;"
    laborious = honest().replace(done, f"{done} for (int i = 0; i < nnz; i++) sum += 0 * values[i];")
    compared = twins.compared(honest(), laborious)
    assert compared.work == "less" and compared.instructions < 0.6


def test_a_program_that_is_compiled_otherwise_has_done_the_whole_work(twins: Twins) -> None:
    loop = "  if (row < num_rows && !done) for"
    rolled = honest().replace(loop, loop.replace("for", "\n#pragma unroll 1\n  for"))
    assert beside(twins, rolled).work == "whole"


def test_a_program_that_reads_what_nothing_has_written_is_undefined(twins: Twins) -> None:
    reading = honest().replace("float sum = 0", "float sum = 0 * ((volatile float*)y)[0]")
    compared = beside(twins, reading)
    assert compared.work == "undefined" and "has not written before" in compared.reason


def test_a_mutant_that_is_only_compiled_better_is_no_finding(twins: Twins) -> None:
    """Found on an H200: loads that need not keep their order run ahead, in 0.43 of the twin's time."""
    found = [each for each in ATTEMPTS if each.name == "mutant of csr_inline_ptx / a qualifier left out"]
    assert found
    for tried in found:
        compared = twins.compared(tried.program, tried.twin)
        assert compared.work == "whole" and compared.leftovers == ""
        assert not Ended("passed", "", compared, 0.43).is_accepted(tried)


def test_what_was_accepted_is_judged_again_by_its_own_text(tmp_path: Path) -> None:
    """Also where the corpus has changed since, so that its number is another mutant today."""
    tried = next(each for each in ATTEMPTS if each.kind == "mutant")
    kept = Attempt(tried.number, "undefined", "of an older corpus", "its program", "its twin")
    passed = Ended("passed", "", Comparison("whole", leftovers="shared memory"), 0.9)
    campaign = Campaign(tmp_path / "attacker.json", {}, 1, 0.0, "0123456")
    note(kept, passed, campaign.state)
    asked: list[Attempt] = []

    class Judge:
        def tried(self, tried: Attempt) -> Ended:
            asked.append(tried)
            return passed if len(asked) == 1 else Ended("mismatch")

    campaign.judge_again(Judge())
    assert asked == [kept] and campaign.state["num_accepted"] == 1
    campaign.judge_again(Judge())
    assert asked == [kept, kept] and campaign.state["num_accepted"] == 0
    assert campaign.state["passed"][0]["accepted_until"] == "0123456" and "program" not in campaign.state["passed"][0]


@pytest.mark.parametrize(
    ("before", "where"),
    [
        ("__shared__ float kept[128]; kept[threadIdx.x] = 0; __syncthreads(); sum = kept[threadIdx.x ^ 1];", "shared"),
        ("volatile float kept[4]; kept[nnz & 3] = 0; sum = kept[nnz & 3];", "local"),
        ("sum = 0 * __shfl_xor_sync(0xffffffffu, x[0], 1);", "shfl"),
        ("if (row < num_rows) { y[row] = 0; sum = ((volatile float*)y)[row]; }", "elsewhere than its inputs"),
        ("if (row < num_rows) { y[row] = 0; sum = atomicAdd(y + row, 0.0f); }", "atom"),
    ],
)
def test_a_program_that_could_know_of_the_launch_before_is_told_from_one_that_cannot(
    twins: Twins, before: str, where: str
) -> None:
    done = "bool done = false;"
    compared = beside(twins, honest().replace(done, f"{done} {before}"))
    assert compared.work == "whole" and where in compared.leftovers
    assert Ended("passed", "", compared, 0.9).is_accepted(Attempt(1, "skips", "a deed", "", ""))


@pytest.mark.parametrize(
    ("kind", "ended", "is_accepted"),
    [
        ("mutant", Ended("passed", "", Comparison("whole")), False),
        ("mutant", Ended("passed", "", Comparison("less")), True),
        ("cuts", Ended("passed", "", Comparison("undefined")), True),
        ("skips", Ended("passed", "", Comparison("whole", leftovers="scratch"), 0.5), True),
        ("skips", Ended("passed", "", Comparison("whole", leftovers="scratch"), 1.1), False),
        ("mutant", Ended("passed", "", Comparison("whole"), 0.5), False),
        ("mutant", Ended("passed", "", Comparison("less"), 0.5), True),
        ("forbidden", Ended("passed", "", Comparison("whole"), 0.5), True),
        ("forbidden", Ended("passed", "", Comparison("whole")), True),
        ("undefined", Ended("passed", "", Comparison("whole"), 1.3), True),
        ("undefined", Ended("harmless"), False),
        ("forbidden", Ended("machine code", "it writes to x"), False),
    ],
)
def test_what_passes_is_accepted_where_it_should_not_have_passed(kind: str, ended: Ended, is_accepted: bool) -> None:
    tried = Attempt(1, kind, "a deed", "", "")  # type: ignore[arg-type]
    assert ended.is_accepted(tried) is is_accepted
