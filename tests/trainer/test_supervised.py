"""Supervised training: targets from measurements, and a tiny policy that learns which program a matrix wants."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from services.trainer.offline.examples import ExampleRules, Examples
from services.trainer.offline.judging import SamplingSettings, evaluate_policy
from services.trainer.offline.prompt_pool import (
    EXACT_FEATURES,
    Device,
    Noise,
    PromptPool,
    asked_for,
    build_pool,
    disturbed,
)
from services.trainer.offline.saved_run import SavedRun
from services.trainer.offline.supervised import (
    SupervisedReport,
    SupervisedSettings,
    backward,
    held_out_nats,
    mean_of_kinds,
    pieces,
    train_supervised,
)
from services.trainer.offline.supervised_commands import inputs_of
from services.trainer.offline.targets import TargetRule, WorkloadTargets, workload_targets
from services.trainer.policy_model import PolicyNetworks, text_batch
from services.trainer.tokenizer import EOS, PAD
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.policy.encoder import collate
from sparsesmith.prompts.arrays import EncoderKind, feature_names, prompt_inputs
from sparsesmith_proto.kernel import Prompt, Workload
from tests.trainer.conftest import make_networks, make_program, make_record
from tests.trainer.killed_run import Killed, KilledAt

SETTINGS = SupervisedSettings(
    seconds=1e6, max_epochs=240, batch_sequences=4, checks=3, matrix_rate=5e-3, other_rate=5e-3
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


def make_examples(tokenizer: Tokenizer, **rules: Any) -> Examples:
    return Examples(make_workloads(), tokenizer, ExampleRules(**{"improve_share": 0.2, "repair_share": 0.0, **rules}))


def make_pool(samples: int = 3, kind: EncoderKind = "structural") -> PromptPool:
    return build_pool(PATTERNS, kind, samples, "cpu")


ASKED = asked_for("spmv", "float32", 1, Device())


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
    pool, examples = make_pool(), make_examples(tokenizer)
    before = held_out_nats(networks, pool, list(examples.fixed()), SETTINGS)
    report = train_supervised(networks, pool, examples, examples, SETTINGS, log=lambda _: None)
    assert report.validation_loss < 0.05 * mean_of_kinds(before)
    assert set(report.nats) == {"write", "improve"}
    for kind, nats in report.nats.items():
        assert nats["program"] == pytest.approx(nats["directives"] + nats["numbers"] + nats["rest"])
        assert nats["program"] < 0.05 * before[kind]["program"]
    sampling = SamplingSettings(samples=4, max_program_tokens=300)
    judged = evaluate_policy(networks, pool, make_workloads(), tokenizer, sampling, lambda *_: True)
    assert judged.finished_share > 0.9
    assert judged.known_workloads == 1.0
    assert judged.best_over_oracle is not None
    assert judged.best_over_oracle > 0.99
    assert judged.best_over_baseline == pytest.approx(2.0, rel=0.01)


def test_the_weights_of_the_least_held_out_loss_are_kept(networks: PolicyNetworks, tokenizer: Tokenizer) -> None:
    examples, pool = make_examples(tokenizer), make_pool(1)
    hot = SupervisedSettings(seconds=1e6, max_epochs=8, batch_sequences=4, checks=8, matrix_rate=0.3, other_rate=0.3)
    report = train_supervised(networks, pool, examples, examples, hot, log=lambda _: None)
    assert report.validation_loss == min(report.validation_losses)
    kept = mean_of_kinds(held_out_nats(networks, pool, list(examples.fixed()), hot))
    assert kept == pytest.approx(report.validation_loss, rel=1e-4)


def test_a_run_that_was_killed_goes_on_with_the_very_next_step(tokenizer: Tokenizer, tmp_path: Path) -> None:
    settings = SupervisedSettings(seconds=1e6, max_epochs=6, batch_sequences=3, checks=3)
    pool, examples = make_pool(), make_examples(tokenizer)

    def trained(saved: SavedRun) -> tuple[SupervisedReport, PolicyNetworks]:
        networks = make_networks(tokenizer)
        return train_supervised(networks, pool, examples, examples, settings, lambda _: None, saved), networks

    through, expected = trained(SavedRun(None, {}))
    with pytest.raises(Killed):
        trained(KilledAt(tmp_path / "run.pt", step=5, seed=1))
    resumed, networks = trained(SavedRun(tmp_path / "run.pt", {"seed": 1}))
    assert resumed.steps == through.steps == 12
    assert resumed.validation_losses == pytest.approx(through.validation_losses, rel=1e-5)
    for name, weights in expected.state_dict().items():
        assert torch.allclose(networks.state_dict()[name], weights, atol=1e-5), name


def test_texts_may_be_computed_a_few_at_a_time_the_short_ones_together(
    networks: PolicyNetworks, tokenizer: Tokenizer
) -> None:
    pool, examples = make_pool(samples=1), list(make_examples(tokenizer, improve_share=0.5).fixed())
    whole, apart = (
        held_out_nats(networks, pool, examples, replace(SETTINGS, piece_sequences=size)) for size in (len(examples), 2)
    )
    for kind, nats in whole.items():
        assert apart[kind]["program"] == pytest.approx(nats["program"], rel=1e-4)
        assert apart[kind]["examples"] == nats["examples"]
    lengths = [[len(each.prompt_ids) + len(each.program.ids) for each in piece] for piece in pieces(examples, 2)]
    assert [*chain(*lengths)] == sorted(chain(*lengths)) and {len(piece) for piece in lengths} <= {1, 2}
    assert [*chain(*pieces(examples, 500))] == examples


def test_gradients_of_a_few_at_a_time_are_those_of_all(networks: PolicyNetworks, tokenizer: Tokenizer) -> None:
    pool, batch = make_pool(samples=1), list(make_examples(tokenizer).fixed())
    gradients = []
    for size in (len(batch), 2):
        networks.zero_grad()
        settings = replace(SETTINGS, piece_sequences=size)
        loss = backward(networks, pool, batch, np.random.default_rng(0), settings, Noise(0.0, 0.0, 0.0))
        gradients.append((float(loss), networks.model.model.embed_tokens.weight.grad.clone()))
    assert gradients[0][0] == pytest.approx(gradients[1][0], rel=1e-5)
    torch.testing.assert_close(gradients[0][1], gradients[1][1], rtol=1e-3, atol=1e-6)


def test_what_another_run_left_is_passed_over(tmp_path: Path) -> None:
    SavedRun(tmp_path / "run.pt", {"seed": 1}).keep({"step": 5})
    assert SavedRun(tmp_path / "run.pt", {"seed": 1}).state() == {"step": 5}
    assert SavedRun(tmp_path / "run.pt", {"seed": 2}).state() is None


def test_logprobs_of_a_text_do_not_depend_on_what_it_is_batched_with(networks: PolicyNetworks) -> None:
    networks.eval()
    pool = make_pool(1)

    def logprobs(names: Sequence[str], programs: Sequence[Sequence[int]]) -> torch.Tensor:
        prompts = pool.batch(names, [ASKED] * len(names), np.random.default_rng(0))
        text = text_batch([[1]] * len(names), programs)
        return networks.logprobs(networks.hidden_states(prompts, text), text)[0]

    alone = logprobs(["wide1"], [[20, 21, 2]])
    together = logprobs(["wide1", "narrow1"], [[20, 21, 2], [30, 31, 32, 33, 34, 2]])
    assert torch.allclose(together[0, :4], alone[0], atol=1e-5)
    assert torch.equal(together[0, 4:], torch.zeros(3))


def test_logprobs_are_those_of_the_language_model_on_the_same_embeddings(networks: PolicyNetworks) -> None:
    networks.eval()
    prompts = make_pool(1).batch(["wide1"], [ASKED], np.random.default_rng(0))
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
    batch = make_pool(1).batch(["wide1"], [ASKED], np.random.default_rng(0))
    noisy = disturbed(batch, Noise(token_dropout=0.5), "structural")
    blank = ~noisy.mask.any(dim=-1)
    assert 0 < int(blank.sum()) < blank.numel()
    assert torch.equal(noisy.header_ids, batch.header_ids)
    assert bool((noisy.points[blank] == 0).all())
    assert torch.isfinite(networks.encoder(noisy)).all()


@pytest.mark.parametrize("kind", ["structural", "profiled"])
def test_no_noise_falls_on_what_a_program_may_depend_on_to_be_right(kind: EncoderKind) -> None:
    batch = make_pool(1, kind).batch(["wide1"], [ASKED], np.random.default_rng(0))
    noisy = disturbed(batch, Noise(feature_dropout=1.0), kind)
    exact = torch.tensor([name in EXACT_FEATURES for name in feature_names(kind)])
    assert 0 < int(exact.sum()) < len(exact)
    assert set(feature_names("profiled")) >= EXACT_FEATURES
    assert torch.equal(noisy.features[:, exact], batch.features[:, exact])
    assert bool((noisy.features[:, ~exact] == 0).all())


def test_a_prompt_of_the_pool_is_the_one_that_is_asked_while_serving() -> None:
    """Features of the matrix, of the workload and of the device, in one order."""
    batch = make_pool(1, "profiled").batch(
        ["wide1"], [asked_for("spmm", "float64", 32, Device(num_sms=78))], np.random.default_rng(0)
    )
    workload = Workload(pattern=PATTERNS["wide1"].digest, operation="spmm", element_type="float64", num_dense_cols=32)
    prompt = Prompt(encoder="profiled", sample_seed=0, architecture="sm_90", num_sms=78, copy_bandwidth_gbs=4260)
    served = collate([prompt_inputs(PATTERNS["wide1"], workload, prompt)])
    for name, tensor in vars(served).items():
        assert torch.equal(getattr(batch, name), tensor), name


def test_what_a_run_depends_on_changes_with_each_file_though_two_have_one_name(tmp_path: Path) -> None:
    files = [tmp_path / folder / "examples.jsonl" for folder in ("measured", "taught")]
    for path in files:
        path.parent.mkdir()
        path.write_text(path.parent.name)
    before = inputs_of(files)
    for path in files:
        path.write_text("another")
        assert inputs_of(files) != before
        path.write_text(path.parent.name)
    assert inputs_of(files) == before
