"""Supervised training: targets from measurements, and a tiny policy that learns which program a matrix wants."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from services.trainer.offline.judging import SamplingSettings, evaluate_policy
from services.trainer.offline.prompt_pool import (
    EXACT_FEATURES,
    Noise,
    PromptPool,
    build_pool,
    disturbed,
    header_tensor,
)
from services.trainer.offline.supervised import Examples, SupervisedSettings, held_out_loss, train_supervised
from services.trainer.offline.targets import TargetRule, WorkloadTargets, workload_targets
from services.trainer.policy_model import PolicyNetworks, text_batch
from services.trainer.tokenizer import EOS, PAD
from sparsesmith.matrix.features import FEATURE_NAMES
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from tests.trainer.conftest import make_program, make_record

SETTINGS = SupervisedSettings(
    seconds=120, max_epochs=320, batch_sequences=4, checks=3, matrix_rate=5e-3, other_rate=5e-3
)


def tridiagonal(size: int) -> Pattern:
    rows = np.repeat(np.arange(size), 3)
    cols = (rows.reshape(-1, 3) + np.array([-1, 0, 1])).reshape(-1)
    inside = (cols >= 0) & (cols < size)
    return pattern_from_indices(size, size, rows[inside], cols[inside])


def scattered(size: int, per_row: int) -> Pattern:
    cols = np.random.default_rng(size).integers(size, size=size * per_row)
    return pattern_from_indices(size, size, np.repeat(np.arange(size), per_row), cols)


PATTERNS = {
    "narrow1": tridiagonal(500),
    "narrow2": tridiagonal(900),
    "wide1": scattered(300, 60),
    "wide2": scattered(500, 90),
}


def make_workloads() -> list[WorkloadTargets]:
    """Narrow matrices want 2 lanes, wide ones 32."""
    records = [
        make_record(pattern=name, program=make_program(lanes), median_us=2.0 if fits else 3.0)
        for name in PATTERNS
        for lanes, fits in ((2, name.startswith("narrow")), (32, name.startswith("wide")))
    ]
    return workload_targets(records, TargetRule())


def make_pool(samples: int = 3) -> PromptPool:
    return build_pool(PATTERNS, "structural", samples, "cpu")


def test_targets_are_the_fast_programs_and_the_fastest_weighs_most() -> None:
    times = {2: 10.0, 4: 10.2, 8: 11.0, 16: 20.0}
    records = [make_record(program=make_program(lanes), median_us=us) for lanes, us in times.items()]
    (workload,) = workload_targets(records, TargetRule(most=3, slowest=1.15))
    assert [target.program for target in workload.targets] == [make_program(2), make_program(4), make_program(8)]
    weights = [target.weight for target in workload.targets]
    assert weights == sorted(weights, reverse=True)
    assert sum(weights) == pytest.approx(1.0)
    assert weights[1] / weights[0] == pytest.approx((10.0 / 10.2) ** (1 / 0.04))


def test_a_program_measured_twice_counts_once_with_its_best_time() -> None:
    records = [make_record(median_us=3.0), make_record(median_us=2.0)]
    (workload,) = workload_targets(records, TargetRule())
    assert [program.median_us for program in workload.measured] == [2.0]
    assert workload.time_of(make_program(4)) == 2.0
    assert workload.time_of("something else") is None


def test_workloads_differ_by_operation_type_and_columns() -> None:
    records = [make_record(), make_record(element_type="float64"), make_record(operation="spmm", num_dense_cols=8)]
    assert len(workload_targets(records, TargetRule())) == 3


def test_a_policy_learns_which_program_each_matrix_wants(networks: PolicyNetworks, tokenizer: Tokenizer) -> None:
    workloads, pool = make_workloads(), make_pool()
    examples = Examples(workloads, tokenizer, SETTINGS)
    before = held_out_loss(networks, pool, examples, SETTINGS)
    report = train_supervised(networks, pool, examples, examples, SETTINGS, log=lambda _: None)
    assert report.validation_loss < 0.05 * before
    judged = evaluate_policy(
        networks, pool, workloads, tokenizer, SamplingSettings(samples=4, max_program_tokens=300), lambda *_: True
    )
    assert judged.finished_share > 0.9
    assert judged.known_workloads == 1.0
    assert judged.best_over_oracle is not None
    assert judged.best_over_oracle > 0.99
    assert judged.best_over_baseline == pytest.approx(2.0, rel=0.01)


def test_the_weights_of_the_least_held_out_loss_are_kept(networks: PolicyNetworks, tokenizer: Tokenizer) -> None:
    examples = Examples(make_workloads(), tokenizer, SETTINGS)
    pool = make_pool(1)
    hot = SupervisedSettings(seconds=60, max_epochs=8, batch_sequences=4, checks=8, matrix_rate=0.3, other_rate=0.3)
    report = train_supervised(networks, pool, examples, examples, hot, log=lambda _: None)
    assert report.validation_loss == min(report.validation_losses)
    assert held_out_loss(networks, pool, examples, hot) == pytest.approx(report.validation_loss, rel=1e-4)


def test_targets_that_are_too_long_are_left_out(tokenizer: Tokenizer) -> None:
    assert len(Examples(make_workloads(), tokenizer, SupervisedSettings(max_program_tokens=10))) == 0


def test_a_refining_example_shows_a_slower_program_and_its_report(tokenizer: Tokenizer) -> None:
    examples = Examples(make_workloads(), tokenizer, SupervisedSettings(refinement_share=1.0))
    (batch,) = [next(examples.epochs(4, np.random.default_rng(0)))]
    shown = tokenizer.decode(batch[0].prompt_ids, skip_special_tokens=False)
    target = tokenizer.decode(batch[0].program_ids)
    parent = make_program(2) if target == make_program(32) else make_program(32)
    assert shown == f"<parent>{parent}<report>passed 3 us speedup 1.33<bos>"


def test_logprobs_of_a_text_do_not_depend_on_what_it_is_batched_with(networks: PolicyNetworks) -> None:
    networks.eval()
    pool = make_pool(1)
    header = header_tensor("spmv", "float32", 1, "sm_90")

    def logprobs(names: Sequence[str], programs: Sequence[Sequence[int]]) -> torch.Tensor:
        prompts = pool.batch(names, [header] * len(names), np.random.default_rng(0))
        text = text_batch([[1]] * len(names), programs)
        return networks.logprobs(networks.hidden_states(prompts, text), text)[0]

    alone = logprobs(["wide1"], [[20, 21, 2]])
    together = logprobs(["wide1", "narrow1"], [[20, 21, 2], [30, 31, 32, 33, 34, 2]])
    assert torch.allclose(together[0, :4], alone[0], atol=1e-5)
    assert torch.equal(together[0, 4:], torch.zeros(3))


def test_logprobs_are_those_of_the_language_model_on_the_same_embeddings(networks: PolicyNetworks) -> None:
    networks.eval()
    prompts = make_pool(1).batch(["wide1"], [header_tensor("spmv", "float32", 1, "sm_90")], np.random.default_rng(0))
    text = text_batch([[1]], [[20, 21, 22, 2]])
    ours, entropy = networks.logprobs(networks.hidden_states(prompts, text), text, temperature=0.7)
    embeds = torch.cat([networks.encoder(prompts), networks.model.get_input_embeddings()(text.token_ids_BT)], dim=1)
    logits = networks.model(inputs_embeds=embeds).logits[0, -5:-1] / 0.7
    theirs = torch.log_softmax(logits, -1)
    assert torch.allclose(ours[0, 1:], theirs[range(4), [20, 21, 22, 2]], atol=1e-4)
    assert torch.allclose(entropy[0, 1:], -(theirs.exp() * theirs).sum(-1), atol=1e-4)


def test_a_text_batch_marks_the_program_and_pads_on_the_right(tokenizer: Tokenizer) -> None:
    pad, eos = int(tokenizer.token_to_id(PAD) or 0), int(tokenizer.token_to_id(EOS) or 0)
    batch = text_batch([[1], [5, 6, 1]], [[30, eos], [31, 32, eos]])
    assert batch.token_ids_BT.tolist() == [[1, 30, eos, pad, pad, pad], [5, 6, 1, 31, 32, eos]]
    assert batch.sampled_mask_BT.tolist() == [[False, True, True] + [False] * 3, [False] * 3 + [True] * 3]


def test_noise_blanks_tokens_and_leaves_the_header(networks: PolicyNetworks) -> None:
    batch = make_pool(1).batch(["wide1"], [header_tensor("spmv", "float32", 1, "sm_90")], np.random.default_rng(0))
    noisy = disturbed(batch, Noise(token_dropout=0.5))
    blank = ~noisy.mask.any(dim=-1)
    assert 0 < int(blank.sum()) < blank.numel()
    assert torch.equal(noisy.header_ids, batch.header_ids)
    assert bool((noisy.points[blank] == 0).all())
    assert torch.isfinite(networks.encoder(noisy)).all()


def test_no_noise_falls_on_what_a_program_may_depend_on_to_be_right() -> None:
    batch = make_pool(1).batch(["wide1"], [header_tensor("spmv", "float32", 1, "sm_90")], np.random.default_rng(0))
    noisy = disturbed(batch, Noise(feature_dropout=1.0))
    exact = torch.tensor([name in EXACT_FEATURES for name in FEATURE_NAMES])
    assert set(FEATURE_NAMES) >= EXACT_FEATURES
    assert torch.equal(noisy.features[:, exact], batch.features[:, exact])
    assert bool((noisy.features[:, ~exact] == 0).all())
