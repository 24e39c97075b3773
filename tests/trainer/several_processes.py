"""A learner in torchrun's processes; the first writes what came of three updates: weights and figures."""

import sys
from pathlib import Path

import torch

from services.trainer.online.algorithm import LearnerOptions
from services.trainer.online.learner import Learner
from services.trainer.online.ranks import Ranks, ranks
from tests.trainer.records import make_batch, make_record, make_sampled
from tests.trainer.test_learner import make_networks

UPDATES = 3


def made(of: Ranks) -> dict[str, object]:
    """By the process that leads; empty by the others. A minibatch may have fewer programs than there are processes."""
    options = LearnerOptions(
        minibatch_records=3, matrix_rate=1e-3, other_rate=1e-3, critic_gate=0.0, epochs=1, program_kl_limit=5.0
    )
    learner = Learner(make_networks(), options, ranks=of)
    if not of.leads:
        learner.follow()
        return {}
    figures = {}
    for update in range(UPDATES):
        records = [
            make_record(
                f"{update}:{number}",
                reward=number / 5,
                origin=make_sampled(group=f"g{number % 2}", token_ids=(*range(20 + number, 25 + 2 * number), 0)),
            )
            for number in range(7)
        ]
        figures = learner.update(make_batch(*records))
        if update == 0:  # What is loaded from a checkpoint reaches the others, too.
            learner.load_state_dict(learner.state_dict())
    learner.dismiss()
    return {"networks": learner.networks.state_dict(), "figures": figures}


def main() -> None:
    torch.set_num_threads(1)
    told = made(ranks("cpu"))
    if told:
        torch.save(told, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
