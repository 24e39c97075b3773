"""Arms of a course: what they set exists, and is not what is set anyway."""

from pathlib import Path

import pytest
import torch

from services.evaluator.settings import EvaluatorSettings
from services.generator.settings import GeneratorSettings
from services.trainer.course.arms import ARMS, Arm, shown_as
from services.trainer.settings import TrainerSettings
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.prompts.arrays import EncoderKind, prompt_inputs
from sparsesmith.prompts.stand_ins import stand_in
from sparsesmith_proto.kernel import Prompt, Workload

COMPARED = {name: arm for name, arm in ARMS.items() if name not in ("rloo", "start")}


@pytest.mark.parametrize("arm", COMPARED.values(), ids=COMPARED.keys())
def test_an_arm_sets_what_there_is_to_other_values_than_the_defaults(arm: Arm, tmp_path: Path) -> None:
    folders = {"policy_dir": tmp_path, "state_dir": tmp_path, "exchange_dir": tmp_path}
    default = TrainerSettings.model_validate(folders)
    ours = TrainerSettings.model_validate({**folders, **{name.lower(): value for name, value in arm.trainer.items()}})
    changed = {name.upper() for name, value in ours if value != getattr(default, name)}
    assert changed == arm.trainer.keys()
    told = EvaluatorSettings.model_validate({name.lower(): value for name, value in arm.evaluator.items()})
    assert {name.upper() for name, value in told if value != getattr(EvaluatorSettings(), name)} == arm.evaluator.keys()
    writing = GeneratorSettings.model_validate({name.lower(): value for name, value in arm.generator.items()})
    changed = {name.upper() for name, value in writing if value != getattr(GeneratorSettings(), name)}
    assert changed == arm.generator.keys()
    assert all(f"SPARSESMITH_GENERATOR_{name}" in arm.services for name in arm.generator)


def test_no_two_arms_are_the_same() -> None:
    told = [
        (dict(arm.trainer), arm.services, arm.family_candidates, arm.parent_every, arm.encoder)
        for arm in COMPARED.values()
    ]
    assert all(told.count(each) == 1 for each in told)


def test_who_imitates_the_families_finds_has_them_searched_and_told() -> None:
    arm = ARMS["imitation"]
    assert arm.family_candidates > 0 and arm.evaluator == {"TELLS_OF_ALL": "true"}
    assert float(arm.trainer["IMITATION_SHARE"]) == 0.15


SHIPPED = Path(__file__).parents[2] / "models" / "sparsesmith-28m"
ONE, OTHER = (pattern_from_indices(9, 9, [0, row], [row, row]) for row in (3, 8))


def seen(folder: Path, pattern: Pattern) -> torch.Tensor:
    embedder = load_embedder(folder)
    prompt = Prompt(encoder=embedder.encoder.kind, sample_seed=1, architecture="sm_90")
    asked = Workload(pattern=pattern.digest, operation="spmv", element_type="float32", num_dense_cols=1)
    return embedder.embed([prompt_inputs(pattern, asked, prompt)])[0]


@pytest.mark.parametrize("encoder", ["blind", "shuffled"])
def test_who_is_shown_something_else_has_the_policys_weights(encoder: EncoderKind, tmp_path: Path) -> None:
    shown = shown_as(SHIPPED, encoder, tmp_path / encoder)
    assert shown_as(SHIPPED, encoder, shown) == shown, "a course that goes on finds it"
    same = ("model-00001-of-00004.safetensors", "encoder.safetensors", "tokenizer.json")
    assert all((shown / name).read_bytes() == (SHIPPED / name).read_bytes() for name in same)


def test_the_blind_arm_sees_no_matrix(tmp_path: Path) -> None:
    blind = shown_as(SHIPPED, "blind", tmp_path / "blind")
    assert torch.equal(seen(blind, ONE), seen(blind, OTHER))
    assert not torch.equal(seen(SHIPPED, ONE), seen(SHIPPED, OTHER))


def test_the_shuffled_arm_sees_what_the_policy_sees_of_the_made_matrix(tmp_path: Path) -> None:
    shuffled = shown_as(SHIPPED, "shuffled", tmp_path / "shuffled")
    assert torch.equal(seen(shuffled, ONE), seen(SHIPPED, stand_in(ONE)))
    assert not torch.equal(seen(shuffled, ONE), seen(shuffled, OTHER))
