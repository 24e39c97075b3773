"""What a course came to, as a policy folder: to be judged by other commands, or shipped, under a name of its own."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file

from services.trainer.course.ledger import Ledger
from sparsesmith.errors import NotFound
from sparsesmith.policy.checkpoint import load_policy, save_policy
from sparsesmith.policy.description import ENCODER_PREFIX
from sparsesmith_proto.message import PolicyVersion

BESIDE = ("tokenizer.json", "tokenizer_config.json")


def export(state: Path, folder: Path) -> PolicyVersion:
    """The version that was judged last, with the tokenizer of the policy that the course started from, and named after
    both. Raises NotFound where none was judged, or its weights are gone."""
    judged = Ledger(state / "ledger.jsonl").events("judged")
    if not judged:
        raise NotFound(f"{state}: no version was judged there", field="state", value=str(state))
    version = int(judged[-1]["version"])
    course = json.loads((state / "course.json").read_text(encoding="utf-8"))
    shipped = Path(course["policy"])
    policy = load_policy(shipped)
    name = policy.description.name
    if version:
        name = f"{name}-{course['arm']}-{course['seed']}"
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
    save_policy(replace(policy, description=replace(policy.description, name=name, version=0)), folder)
    for name in BESIDE:
        shutil.copy(shipped / name, folder / name)
    return version
