"""A trainer that is killed by SIGKILL at a chosen moment: `python -m tests.trainer.dying_trainer announce|acknowledge`.

It is the real one but for the channel at which it dies; settings come from the environment.
"""

import os
import signal
import sys
from dataclasses import replace

from services.trainer.online.intake import Collected, RecordIntake
from services.trainer.online.publishing import Publisher
from services.trainer.service import open_workshop
from services.trainer.settings import TrainerSettings
from services.trainer.training import train
from sparsesmith.transport.connection import connect
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith_proto.policy import PolicyAnnouncement


class DyingChannel(PolicyChannel):
    def announce(self, announcement: PolicyAnnouncement) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return True


class DyingIntake(RecordIntake):
    def __init__(self, living: RecordIntake) -> None:
        vars(self).update(vars(living))

    def acknowledge(self, collected: Collected) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    settings = TrainerSettings()
    connection = connect(settings.redis_url)
    workshop = open_workshop(settings, connection)
    if sys.argv[1] == "announce":
        workshop = replace(workshop, publisher=Publisher(settings.exchange_dir, DyingChannel(connection), 4))
    else:
        workshop = replace(workshop, intake=DyingIntake(workshop.intake))
    train(workshop, lambda: False, max_updates=1)


if __name__ == "__main__":
    main()
