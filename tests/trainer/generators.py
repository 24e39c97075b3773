"""The generator's end of the policy channel, as a test wants it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparsesmith.transport.connection import connect
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith_proto.policy import PolicyAnnouncement, Verdict

Decide = Callable[[PolicyAnnouncement], str | None]
"""Why a version must not serve; None where it may."""


def make_verdict(announcement: PolicyAnnouncement, complaint: str | None = None) -> Verdict:
    return Verdict(
        announcement=announcement,
        decision="refused" if complaint else "accepted",
        reason=complaint or "as good",
        decided_at="2026-11-22T00:00:00Z",
    )


def agree(announcement: PolicyAnnouncement) -> None:
    """Every version may serve."""


@contextmanager
def generator(redis_url: str, decide: Decide = agree) -> Iterator[None]:
    """Decides of every announced version within milliseconds."""
    channel, stopping = PolicyChannel(connect(redis_url)), threading.Event()

    def watch() -> None:
        while not stopping.is_set():
            newest = channel.latest()
            if newest is not None and newest.version > channel.standing().newest_judged:
                channel.judge(make_verdict(newest, decide(newest)))
            time.sleep(0.01)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
