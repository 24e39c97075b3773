"""What a course came to, as a policy folder: to be judged by other commands, or shipped."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from services.trainer.course.ledger import Ledger
from sparsesmith.errors import NotFound
from sparsesmith.policy.checkpoint import ENCODER_PREFIX, load_policy, save_policy
from sparsesmith_proto.message import PolicyVersion

BESIDE = ("tokenizer.json", "tokenizer_config.json")


def export(state: Path, folder: Path) -> PolicyVersion:
    """The version that was judged last, with the shipped policy's tokenizer. Raises NotFound where none was judged, or
    its weights are gone."""
    judged = Ledger(state / "ledger.jsonl").events("judged")
    if not judged:
        raise NotFound(f"{state}: no version was judged there", field="state", value=str(state))
    version = int(judged[-1]["version"])
    shipped = _shipped(state)
    policy = load_policy(shipped)
    if version:
        path = state / "policy" / f"policy-{version}.safetensors"
        if not path.is_file():
            raise NotFound(f"the weights of version {version} are gone: {path.name}", field="version", value=version)
        tensors = {name: value.float() for name, value in load_file(path).items()}
        encoder = {
            name.removeprefix(ENCODER_PREFIX): t for name, t in tensors.items() if name.startswith(ENCODER_PREFIX)
        }
        policy.encoder.load_state_dict(encoder)
        model = {name: value for name, value in tensors.items() if not name.startswith(ENCODER_PREFIX)}
        policy.model.load_state_dict(model, strict=False)  # A tied output head may be left out.
    save_policy(replace(policy, description=replace(policy.description, version=0)), folder)
    for name in BESIDE:
        shutil.copy(shipped / name, folder / name)
    return version


def _shipped(state: Path) -> Path:
    """The folder that the course started from."""
    return Path(json.loads((state / "course.json").read_text(encoding="utf-8"))["policy"])
