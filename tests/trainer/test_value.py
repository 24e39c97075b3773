"""The value model: it learns which of two programs is faster on a matrix, and how that is counted."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from services.trainer.offline.prompt_pool import Device, PromptPool, build_pool
from services.trainer.offline.saved_run import SavedRun
from services.trainer.offline.sides import Side
from services.trainer.offline.targets import Repair, TargetRule, workload_targets
from services.trainer.offline.value_training import (
    Judged,
    Programs,
    ValueSettings,
    judged,
    log_times,
    ranking_of,
    train_value_model,
    value_loss,
)
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import save_tokenizer
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.value import ValueModel, load_judge, load_value_model, padded, save_value_model
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith_proto.kernel import Prompt, Workload
from tests.trainer.conftest import make_networks, make_program, make_record
from tests.trainer.killed_run import Killed, KilledAt
from tests.trainer.test_supervised import PATTERNS

LANES = (2, 4, 8, 16, 32)
SETTINGS = ValueSettings(
    seconds=1e6, max_passes=150, workloads=4, programs=5, checks=2, matrix_rate=3e-3, other_rate=3e-3
)


def make_workloads(**changes: Any) -> list[Judged]:
    """Few lanes are fast on narrow matrices, many on wide ones."""
    found = []
    for name in PATTERNS:
        order = LANES if name.startswith("narrow") else LANES[::-1]
        records = [
            make_record(pattern=name, program=make_program(lanes), median_us=2.0 * 1.3**place)
            for place, lanes in enumerate(order)
        ]
        (workload,) = workload_targets(records, TargetRule())
        found.append(judged(type(workload)(**{**vars(workload), **changes}), Device()))
    return found


def make_pool() -> PromptPool:
    return build_pool(PATTERNS, "structural", 2, "cpu")


def make_model(tokenizer: Tokenizer) -> ValueModel:
    networks = make_networks(tokenizer)
    torch.manual_seed(0)
    return ValueModel(networks.model, networks.encoder)


def test_it_learns_which_program_is_faster_on_which_matrix(tokenizer: Tokenizer) -> None:
    model, workloads, programs = make_model(tokenizer), make_workloads(), Programs(tokenizer)
    sides: Mapping[Side, list[Judged]] = {"train": workloads, "validation": workloads}
    report = train_value_model(model, make_pool(), sides, programs, SETTINGS, log=lambda _: None)
    assert report.programs == 20
    assert report.train_loss < 0.01
    for each in workloads:
        expected = ranking_of([(each.log_times, times_of(model, each, programs))])
        assert expected.spearman > 0.8


def times_of(model: ValueModel, workload: Judged, programs: Programs) -> Any:
    return log_times(model, make_pool(), workload, programs, SETTINGS)


def test_failures_teach_the_chance_to_pass(tokenizer: Tokenizer) -> None:
    """Programs for doubles fail here; what the contract rejects is not shown."""
    failing = Repair(make_program(4, "double"), "mismatch row 3 is wrong", make_program(4))
    rejected = Repair("no program", "rejected no format", make_program(4))
    workloads = make_workloads(repairs=(failing, rejected))
    assert [each.failed for each in workloads] == [(failing.failed,)] * 4
    model, programs, pool = make_model(tokenizer), Programs(tokenizer), make_pool()
    settings = ValueSettings(**{**vars(SETTINGS), "max_passes": 60})
    report = train_value_model(model, pool, {"train": workloads, "validation": []}, programs, settings, lambda _: None)
    assert report.failures == 4
    model.eval()
    prompts = pool.batch(["wide1"] * 2, [workloads[0].asked] * 2, np.random.default_rng(0))
    ids = [programs.ids(text) for text in (make_program(8), failing.failed)]
    with torch.no_grad():
        logits, _ = model(prompts, *padded(ids))
    assert logits[0] > 0 > logits[1]


def test_the_loss_of_times_does_not_see_how_long_a_workload_takes() -> None:
    groups, measured = torch.tensor([0, 0, 1, 1]), torch.tensor([0.0, 1.0, 5.0, 5.5])
    shifted = measured + torch.tensor([3.0, 3.0, -2.0, -2.0])
    assert float(value_loss(torch.zeros(4), shifted, measured, groups, 0.0)) == pytest.approx(0.0, abs=1e-12)
    assert float(value_loss(torch.zeros(4), shifted, measured, groups, 0.1)) > 0.1


def test_a_program_that_failed_counts_only_as_one_that_did_not_pass() -> None:
    groups, measured = torch.tensor([0, 0, 0]), torch.tensor([0.0, 1.0, math.nan])
    wrong_time, right = torch.tensor([0.0, 1.0, 99.0]), torch.tensor([20.0, 20.0, -20.0])
    assert float(value_loss(right, wrong_time, measured, groups, 0.0)) == pytest.approx(0.0, abs=1e-6)
    assert float(value_loss(-right, wrong_time, measured, groups, 0.0)) == pytest.approx(2.0, rel=1e-3)


def test_a_ranking_is_counted_within_workloads() -> None:
    times = np.log(np.arange(1.0, 17.0))
    perfect = ranking_of([(times, times + 5), (times, times - 5)])
    assert (perfect.workloads, perfect.programs, perfect.spearman, perfect.quarter) == (2, 32, pytest.approx(1), 1.0)
    backwards = ranking_of([(times, -times)])
    assert backwards.spearman == pytest.approx(-1)
    assert backwards.quarter == pytest.approx(1 / 13)
    assert 1 / 13 < perfect.quarter_by_chance < 1


def test_a_model_that_knows_no_difference_has_no_rank_correlation() -> None:
    times = np.log(np.arange(1.0, 17.0))
    assert ranking_of([(times, np.zeros(16))]).spearman == 0.0


def test_a_run_that_was_killed_goes_on_with_the_very_next_step(tokenizer: Tokenizer, tmp_path: Path) -> None:
    settings = ValueSettings(seconds=1e6, max_passes=6, workloads=3, programs=3, checks=2)
    pool, programs, workloads = make_pool(), Programs(tokenizer), make_workloads()
    sides: Mapping[Side, list[Judged]] = {"train": workloads, "validation": workloads}

    def trained(saved: SavedRun) -> ValueModel:
        model = make_model(tokenizer)
        train_value_model(model, pool, sides, programs, settings, lambda _: None, saved)
        return model

    expected = trained(SavedRun(None, {}))
    with pytest.raises(Killed):
        trained(KilledAt(tmp_path / "run.pt", step=5))
    resumed = trained(SavedRun(tmp_path / "run.pt", {}))
    for name, weights in expected.state_dict().items():
        assert torch.allclose(resumed.state_dict()[name], weights, atol=1e-5), name


def test_a_folder_gives_the_same_judgements_by_texts(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In bfloat16; without failures nothing is said of passing."""
    model, programs = make_model(tokenizer), Programs(tokenizer)
    save_value_model(model, PolicyDescription("value", "structural"), tmp_path)
    save_tokenizer(tokenizer.to_str(), tmp_path)
    judge, workload = load_judge(tmp_path), make_workloads()[0]
    prompt = Prompt(encoder="structural", sample_seed=0, architecture="sm_90")
    pattern = PATTERNS[workload.pattern]
    asked = Workload(pattern=pattern.digest, operation="spmv", element_type="float32")
    found = judge.worth(prompt_inputs(pattern, asked, prompt), list(workload.programs))
    loaded, _ = load_value_model(tmp_path)
    pool = build_pool({workload.pattern: pattern}, "structural", 1, "cpu")
    expected = log_times(loaded, pool, workload, programs, SETTINGS)
    assert [each.log_time for each in found] == pytest.approx(expected.tolist(), abs=1e-4)
    assert {each.passes for each in found} == {None}
    assert judge.worth(prompt_inputs(pattern, asked, prompt), []) == []


def test_a_policy_folder_is_no_value_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"holds no value model: value\.safetensors is missing"):
        load_value_model(tmp_path)
