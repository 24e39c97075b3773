"""Run in a process of its own, with the folder `outside` on its path: a few updates by an algorithm of another package.

Prints one JSON object: how likely the rewarded program was before and after.
"""

import json

import torch

from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.learner import Learner
from services.trainer.service import chosen
from services.trainer.settings import TrainerSettings
from tests.trainer.test_learner import REWARDED, logprob_of, make_networks, updated


def main() -> None:
    torch.set_num_threads(1)
    settings = TrainerSettings(matrix_rate=1e-2, other_rate=3e-3, program_kl_limit=1.0)
    learner = Learner(make_networks(), chosen(LearnerOptions, settings))
    before = logprob_of(learner, REWARDED)
    updated(learner, 10)
    print(json.dumps({"before": before, "after": logprob_of(learner, REWARDED)}))


if __name__ == "__main__":
    main()
