from pathlib import Path
from typing import Any

import pytest
import torch

from services.trainer.online.checkpoints import (
    MAX_USED_RECORDS,
    Checkpoint,
    CheckpointFolder,
    policy_identity,
    remembered,
)


def make_checkpoint(version: int = 1, **changes: Any) -> Checkpoint:
    fields: dict[str, Any] = {
        "policy": "identity",
        "version": version,
        "step": version,
        "metrics": {"mean_reward": 0.5},
        "created_at": "2026-11-21T00:00:00Z",
        "used": ("job:1", "job:2"),
        "learner": {"weights": torch.arange(4.0), "optimizer": [{"state": {0: {"step": 3}}}]},
    }
    return Checkpoint(**{**fields, **changes})


def version_of(checkpoint: Checkpoint | None) -> int | None:
    return None if checkpoint is None else checkpoint.version


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    folder.save(make_checkpoint())
    loaded = folder.newest("identity")
    assert loaded is not None
    assert torch.equal(loaded.learner.pop("weights"), torch.arange(4.0))
    expected = make_checkpoint()
    expected.learner.pop("weights")
    assert loaded == expected


def test_an_empty_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "new", keep=2).newest("identity") is None


@pytest.mark.parametrize("bytes_left", [0, 1, 1000])
def test_a_torn_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path, bytes_left: int) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    folder.save(make_checkpoint(1))
    newest = folder.save(make_checkpoint(2))
    newest.write_bytes(newest.read_bytes()[:bytes_left])
    assert version_of(folder.newest("identity")) == 1


def test_a_checkpoint_with_a_flipped_bit_is_passed_over(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    path = folder.save(make_checkpoint(1))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert folder.newest("identity") is None


def test_a_checkpoint_of_another_policy_is_passed_over(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=3)
    folder.save(make_checkpoint(1))
    folder.save(make_checkpoint(2, policy="another"))
    assert version_of(folder.newest("identity")) == 1


def test_only_the_newest_few_stay_and_no_half_written_file(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=2)
    (tmp_path / "checkpoint-torn.pt.part").write_bytes(b"half")
    for version in (8, 9, 10):
        folder.save(make_checkpoint(version))
    assert sorted(path.name[:19] for path in tmp_path.iterdir()) == ["checkpoint-00000009", "checkpoint-00000010"]


def test_a_checkpoint_of_a_lower_version_survives_its_own_saving(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, keep=1)
    folder.save(make_checkpoint(7, policy="another"))
    folder.save(make_checkpoint(1))
    assert version_of(folder.newest("identity")) == 1


def test_the_oldest_used_records_are_forgotten_first() -> None:
    ids = [str(number) for number in range(MAX_USED_RECORDS)]
    assert remembered(ids, ["new", "5"]) == (*ids[1:], "new")


def test_a_policy_folder_with_other_weights_has_another_identity(tmp_path: Path) -> None:
    for name in ("config.json", "policy.json", "model.safetensors"):
        (tmp_path / name).write_text(name)
    before = policy_identity(tmp_path)
    (tmp_path / "README.md").write_text("words")
    assert policy_identity(tmp_path) == before
    (tmp_path / "model.safetensors").write_text("other")
    assert policy_identity(tmp_path) != before
