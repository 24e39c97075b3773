"""Both error rates of the canary's decision, simulated with fixed seeds."""

import numpy as np
import pytest

from services.generator.policy.comparison import REWARD_TOLERANCE, Z_LIMIT, GapLimits, complaint, shortfall
from sparsesmith_proto.policy import LogprobGap, Probe, ProbePrompt

PASS_SHARES = np.array([0.99, 0.99, 0.98, 0.98, 0.97, 0.95, 0.9, 0.6])
"""Of the eight prompts: most hardly ever fail, one is hard; 92 % in all."""
SPEEDS = np.linspace(0.3, 1.1, 8)
"""Log2 speed-ups of what passes."""
TRIALS = 300


def make_gap(per_token: float = 0.01, per_program: float = 0.1) -> LogprobGap:
    return LogprobGap(probe_id="p", version=1, per_token=per_token, per_program=per_program, num_tokens=500)


def probe_of(
    random: np.random.Generator, version: int, samples: int = 8, loss: float = 0.0, slower: float = 0.0
) -> Probe:
    """A probe of a policy that passes `loss` less often than the usual one and is `slower` in log2."""
    prompts = []
    for number, (share, speed) in enumerate(zip(PASS_SHARES, SPEEDS, strict=True)):
        passed = random.random(samples) < max(0.0, share - loss)
        rewards = np.where(passed, 0.2 + speed - slower + 0.25 * random.choice([-1, 0, 1], samples), -0.4)
        prompts.append(
            ProbePrompt(
                name=f"p{number}", compiled=(True,) * samples, passed=tuple(map(bool, passed)), rewards=tuple(rewards)
            )
        )
    return Probe(version=version, probe_set="probe", device="cuda test", prompts=tuple(prompts), gap=make_gap())


def share_refused(loss: float = 0.0, slower: float = 0.0, seed: int = 0) -> float:
    """Against the shipped version, measured with 256 samples, and the one in service, with 64."""
    random = np.random.default_rng(seed)
    refused = 0
    for _ in range(TRIALS):
        references = [probe_of(random, 0, samples=32), probe_of(random, 3)]
        refused += complaint(probe_of(random, 4, loss=loss, slower=slower), references, GapLimits()) is not None
    return refused / TRIALS


def test_at_least_nine_in_ten_versions_that_are_as_good_are_let_through() -> None:
    assert share_refused() <= 0.10


def test_two_programs_in_64_that_do_not_compile_are_no_evidence() -> None:
    """As an H200 showed: versions as good as the shipped one fell by this alone."""
    shipped = [[1.0] * 32] * 8
    for failures in ([2, 0], [1, 1]):
        own = [[0.0] * count + [1.0] * (8 - count) for count in (*failures, 0, 0, 0, 0, 0, 0)]
        assert shortfall(own, shipped)[1] > Z_LIMIT
        assert shortfall(own, shipped, continuity=0.5)[1] < Z_LIMIT


def test_the_measured_drift_from_93_to_70_per_cent_is_found() -> None:
    assert share_refused(loss=0.23) >= 0.99


@pytest.mark.parametrize(("loss", "at_least"), [(0.05, 0.25), (0.10, 0.65), (0.15, 0.90)])
def test_smaller_losses_are_found_more_and_more_often_as_versions_add_them_up(loss: float, at_least: float) -> None:
    assert share_refused(loss=loss) >= at_least


def test_slow_drift_is_stopped_within_23_versions() -> None:
    """Each version a point worse than the one in service. A refused one is not built upon: the loss does not grow."""
    ends = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        shipped, serving, loss = probe_of(random, 0, samples=32), None, 0.0
        for version in range(1, 24):
            candidate = probe_of(random, version, loss=loss + 0.01)
            references = [shipped] if serving is None else [shipped, serving]
            if complaint(candidate, references, GapLimits()) is None:
                serving, loss = candidate, loss + 0.01
        ends.append(loss)
    assert np.mean(ends) < 0.12
    assert max(ends) < 0.2


def test_slower_programs_are_found_though_all_pass() -> None:
    assert share_refused(slower=0.3) >= 0.9


def test_programs_that_do_not_compile_any_more_are_found() -> None:
    random = np.random.default_rng(0)
    reference, candidate = probe_of(random, 0, samples=32), probe_of(random, 1)
    broken = tuple(
        prompt.model_copy(update={"compiled": (False, False, *prompt.compiled[2:])}) for prompt in candidate.prompts
    )
    told = complaint(candidate.model_copy(update={"prompts": broken}), [reference], GapLimits())
    assert told is not None and "compile share is 0.250 below that of the shipped version" in told


def test_a_clock_that_runs_a_little_slower_everywhere_is_not_held_against_a_version() -> None:
    random = np.random.default_rng(0)
    reference = probe_of(random, 0, samples=32)
    same = tuple(
        prompt.model_copy(update={"rewards": tuple(reward - 0.9 * REWARD_TOLERANCE for reward in prompt.rewards)})
        for prompt in reference.prompts
    )
    candidate = reference.model_copy(update={"version": 1, "prompts": same})
    assert complaint(candidate, [reference], GapLimits()) is None


def test_an_engine_that_computes_another_policy_is_found() -> None:
    random = np.random.default_rng(0)
    reference, candidate = probe_of(random, 0, samples=32), probe_of(random, 1)
    for gap in (make_gap(per_token=0.04), make_gap(per_program=0.3)):
        told = complaint(candidate.model_copy(update={"gap": gap}), [reference], GapLimits(0.02, 0.15))
        assert told is not None and told.startswith("engine and trainer do not compute the same policy")
    assert complaint(candidate.model_copy(update={"gap": make_gap(0.029, 0.24)}), [reference], GapLimits()) is None


def test_without_the_trainers_word_no_version_serves() -> None:
    random = np.random.default_rng(0)
    reference, candidate = probe_of(random, 0, samples=32), probe_of(random, 1)
    told = complaint(candidate.model_copy(update={"gap": None}), [reference], GapLimits())
    assert told == "the trainer was not asked for its log-probabilities"


def test_the_statistic_is_that_of_mantel_and_haenszel() -> None:
    """By hand: 8 of 8 against 6 of 8 has mean 7, variance 64 * 14 * 2 / (256 * 15); 4 of 4 against 4 of 4 adds none."""
    lack, z = shortfall([[1] * 6 + [0] * 2, [1] * 4], [[1] * 8, [1] * 4])
    assert lack == pytest.approx(2 / 12)
    assert z == pytest.approx(1 / np.sqrt(64 * 14 * 2 / (256 * 15)))
    assert shortfall([[1.0, 1.0]], [[1.0, 1.0]]) == (0.0, 0.0)
    assert z < Z_LIMIT
