"""What is compared: settings by name, each against the default."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sparsesmith.prompts.arrays import FEATURE_VERSIONS, EncoderKind


@dataclass(frozen=True)
class Arm:
    """Beyond what a course sets itself."""

    trainer: Mapping[str, str] = field(default_factory=dict)
    """Settings of the trainer by name."""
    evaluator: Mapping[str, str] = field(default_factory=dict)
    """Of the evaluators."""
    generator: Mapping[str, str] = field(default_factory=dict)
    """Of the generator."""
    family_candidates: int = 0
    """Candidates of the kernel families that are graded of each lesson, once, before its first samples."""
    parent_every: int = 0
    """Each so many-th job asks for changes of a program that was measured; 0: none."""
    encoder: EncoderKind | None = None
    """What the policy is shown; None: as it was taught."""

    @property
    def services(self) -> dict[str, str]:
        """Settings of evaluators and generator, as variables."""
        return {
            **{f"SPARSESMITH_EVALUATOR_{name}": value for name, value in self.evaluator.items()},
            **{f"SPARSESMITH_GENERATOR_{name}": value for name, value in self.generator.items()},
        }


LONG_STEPS = {"PROGRAM_KL_LIMIT": "0.5", "MATRIX_RATE": "0.0002", "OTHER_RATE": "0.00006"}
"""An update may move the policy two and a half times as far, at twice the rates."""

PPO, EXPERT = {"ALGORITHM": "ppo"}, {"ALGORITHM": "expert"}

ARMS: Mapping[str, Arm] = {
    "rloo": Arm(),
    "ppo": Arm(PPO),
    "expert": Arm(EXPERT),
    "ppo-taught": Arm({**PPO, "TAUGHT_CRITIC": "true"}),
    "rloo-fast": Arm(LONG_STEPS),
    "ppo-fast": Arm({**PPO, **LONG_STEPS}),
    "expert-fast": Arm({**EXPERT, **LONG_STEPS}),
    "paper": Arm({"REWARD": "paper"}),
    "paper-bounded": Arm({"REWARD": "paper_bounded"}),
    "improvement": Arm({"REWARD": "improvement"}),
    "best-of-4": Arm({**PPO, "BEST_SHARE": "0.5"}),
    "best-of-4-alone": Arm({**PPO, "BEST_SHARE": "1"}),
    "lambda-0.95": Arm(
        {**PPO, "GAE_LAMBDA": "0.95", "VALUE_TARGETS": "bootstrapped", "ADVANTAGE_SCALE": "batch", "CRITIC_GATE": "0"}
    ),
    "lambda-0.95-alone": Arm({**PPO, "GAE_LAMBDA": "0.95", "CRITIC_GATE": "0"}),
    "lambda-by-length": Arm({**PPO, "GAE_LAMBDA": "length"}),
    "groups-alone": Arm({**PPO, "GROUP_SHARE": "1"}),
    "imitation": Arm({"IMITATION_SHARE": "0.15"}, {"TELLS_OF_ALL": "true"}, family_candidates=32),
    "own-imitation": Arm({"IMITATION_SHARE": "0.15"}),
    "explore": Arm(generator={"EXPLORING_SHARE": "0.25"}),
    "parents": Arm(parent_every=2),
    "shuffled": Arm(encoder="shuffled"),
    "blind": Arm(encoder="blind"),
    "start": Arm(),
}
"""`rloo` is what a trainer does by default. `paper`, `improvement`, `imitation`, `explore`, `parents`, `shuffled` and
`blind` change one thing of it, `best-of-4`, `lambda` and `groups-alone` one of PPO. `start` is judged and learns
nothing. `fast`: longer steps. `ppo-taught`: its critic begins as what was taught on measured programs. `lambda-0.95` is
the credit of old, `lambda-0.95-alone` its lambda with a critic of Monte-Carlo targets that is always asked. `imitation`
learns from what the families find, `own-imitation` from the policy's own finds. Of `explore` a quarter of the groups is
sampled warmer, of `parents` every other job is of changes of a measured program. `shuffled` is shown a made matrix in
the right one's place, always the same one for the same matrix, `blind` nothing of any."""


def shown_as(policy: Path, encoder: EncoderKind, folder: Path) -> Path:
    """A copy of a policy whose weights see what another encoder shows. The two must have the same networks."""
    if not folder.exists():
        partial = folder.with_name(folder.name + ".part")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(policy, partial)
        description = json.loads((partial / "policy.json").read_text(encoding="utf-8"))
        changed = {"encoder": encoder, "feature_version": FEATURE_VERSIONS[encoder]}
        (partial / "policy.json").write_text(json.dumps(description | changed, indent=2) + "\n", encoding="utf-8")
        partial.rename(folder)
    return folder
