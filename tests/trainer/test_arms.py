"""Arms of a course: what they set exists, and is not what is set anyway."""

from pathlib import Path

import pytest

from services.evaluator.settings import EvaluatorSettings
from services.trainer.course.arms import ARMS, Arm
from services.trainer.settings import TrainerSettings

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


def test_no_two_arms_are_the_same() -> None:
    told = [(dict(arm.trainer), dict(arm.evaluator), arm.family_candidates) for arm in COMPARED.values()]
    assert all(told.count(each) == 1 for each in told)


def test_who_imitates_the_families_finds_has_them_searched_and_told() -> None:
    arm = ARMS["imitation"]
    assert arm.family_candidates > 0 and arm.evaluator == {"TELLS_OF_ALL": "true"}
    assert float(arm.trainer["IMITATION_SHARE"]) == 0.15
