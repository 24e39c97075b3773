"""What is compared: settings by name, each against the default."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Arm:
    """Beyond what a course sets itself."""

    trainer: Mapping[str, str] = field(default_factory=dict)
    """Settings of the trainer by name."""
    evaluator: Mapping[str, str] = field(default_factory=dict)
    """Of the evaluators."""
    family_candidates: int = 0
    """Candidates of the kernel families that are graded of each lesson, once, before its first samples."""


LONG_STEPS = {"PROGRAM_KL_LIMIT": "0.5", "MATRIX_RATE": "0.0002", "OTHER_RATE": "0.00006"}
"""An update may move the policy two and a half times as far, at twice the rates."""

ARMS: Mapping[str, Arm] = {
    "ppo": Arm(),
    "rloo": Arm({"ALGORITHM": "rloo"}),
    "expert": Arm({"ALGORITHM": "expert"}),
    "ppo-taught": Arm({"TAUGHT_CRITIC": "true"}),
    "ppo-fast": Arm(LONG_STEPS),
    "expert-fast": Arm({"ALGORITHM": "expert", **LONG_STEPS}),
    "paper": Arm({"REWARD": "paper"}),
    "paper-bounded": Arm({"REWARD": "paper_bounded"}),
    "improvement": Arm({"REWARD": "improvement"}),
    "best-of-4": Arm({"BEST_SHARE": "0.5"}),
    "best-of-4-alone": Arm({"BEST_SHARE": "1"}),
    "lambda-0.95": Arm(
        {"GAE_LAMBDA": "0.95", "VALUE_TARGETS": "bootstrapped", "ADVANTAGE_SCALE": "batch", "CRITIC_GATE": "0"}
    ),
    "lambda-0.95-alone": Arm({"GAE_LAMBDA": "0.95", "CRITIC_GATE": "0"}),
    "lambda-by-length": Arm({"GAE_LAMBDA": "length"}),
    "groups-alone": Arm({"GROUP_SHARE": "1"}),
    "imitation": Arm({"IMITATION_SHARE": "0.15"}, {"TELLS_OF_ALL": "true"}, family_candidates=32),
    "own-imitation": Arm({"IMITATION_SHARE": "0.15"}),
    "start": Arm(),
}
"""`start` is judged and learns nothing. `fast`: longer steps. `ppo-taught`: its
critic begins as what was taught on measured programs. `lambda-0.95` is the
credit of old, `lambda-0.95-alone` its lambda with a critic of Monte-Carlo targets that is always asked. `imitation`
learns from what the families find, `own-imitation` from the policy's own finds."""
