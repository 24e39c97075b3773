"""Weights between trainer and generator, both ends: announcements one way; questions of log-probabilities the other way
and their answers back; and the standing, which says what was decided of each version and which one serves.

Each key holds one message, the newest. A message of another version of the contract counts as none, and the next one
takes its place. Not protected against: whoever can write to Redis can announce weights and decide of them.
"""

import logging
from collections.abc import Callable
from typing import TypeVar

import redis
from pydantic import ValidationError

from sparsesmith.errors import Conflict, NotFound
from sparsesmith.transport.connection import Redis, answering
from sparsesmith_proto.message import Message, PolicyVersion
from sparsesmith_proto.policy import LogprobGap, PolicyAnnouncement, PolicyStanding, Probe, ProbeQuestion, Verdict

log = logging.getLogger(__name__)

_KEY = "sparsesmith:policy:latest"
_STANDING = "sparsesmith:policy:standing"
_QUESTION = "sparsesmith:policy:question"
_ANSWER = "sparsesmith:policy:answer"
_ASKED_TTL_S = 3600
"""Nobody waits longer for an answer."""

Content = TypeVar("Content", bound=Message)


class PolicyChannel:
    """Versions only rise; a version is decided of once, unless an operator rolls back. Methods raise Unavailable."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection

    def announce(self, announcement: PolicyAnnouncement) -> bool:
        """Make this the newest; False where one at least as new is there already."""

        def newer(known: PolicyAnnouncement | None) -> PolicyAnnouncement | None:
            return announcement if known is None or known.version < announcement.version else None

        return self._changed(_KEY, PolicyAnnouncement, newer) is not None

    def latest(self) -> PolicyAnnouncement | None:
        """The newest announcement; None before the first."""
        return self._read(_KEY, PolicyAnnouncement)

    def standing(self) -> PolicyStanding:
        """What was decided so far."""
        return self._read(_STANDING, PolicyStanding) or PolicyStanding()

    def judge(self, verdict: Verdict, *probes: Probe) -> bool:
        """Decide of a version; with its own probe and others that were taken for it. False: it was decided already."""

        def judged(known: PolicyStanding | None) -> PolicyStanding | None:
            standing = known or PolicyStanding()
            return None if standing.newest_judged >= verdict.version else standing.with_verdict(verdict, *probes)

        return self._changed(_STANDING, PolicyStanding, judged) is not None

    def keep_probe(self, probe: Probe) -> None:
        """Of the shipped version or the one in service, for the comparisons to come."""

        def kept(known: PolicyStanding | None) -> PolicyStanding:
            standing = known or PolicyStanding()
            others = tuple(each for each in standing.probes if each.version != probe.version)
            return standing.model_copy(update={"probes": (*others, probe)})

        self._changed(_STANDING, PolicyStanding, kept)

    def roll_back(self, to: PolicyVersion, reason: str, now: str) -> PolicyStanding:
        """An operator's decision.

        Raises NotFound for a version that is not an accepted one (0 always is), Conflict where it serves and nothing
        newer is on its way.
        """
        newest = self.latest()

        def undone(known: PolicyStanding | None) -> PolicyStanding:
            standing = known or PolicyStanding()
            found = standing.verdict(to)
            if to != 0 and (found is None or found.decision != "accepted"):
                raise NotFound(f"version {to} is not an accepted one", field="version", value=to)
            changed = standing.rolled_back(to, newest, reason, now)
            if changed == standing:
                raise Conflict(f"version {to} serves already", field="version", value=to)
            return changed

        return self._changed(_STANDING, PolicyStanding, undone) or self.standing()

    def ask(self, question: ProbeQuestion) -> None:
        """Put a question to the trainer, in place of the one before."""
        self._write(_QUESTION, question)

    def question(self) -> ProbeQuestion | None:
        """The newest question, answered or not."""
        return self._read(_QUESTION, ProbeQuestion)

    def answer(self, gap: LogprobGap) -> None:
        """Answer the question of that `probe_id`."""
        self._write(_ANSWER, gap)

    def answered(self, probe_id: str) -> LogprobGap | None:
        """The answer to a question; None while there is none."""
        gap = self._read(_ANSWER, LogprobGap)
        return gap if gap is not None and gap.probe_id == probe_id else None

    def _write(self, key: str, message: Message) -> None:
        with answering():
            self._connection.set(key, message.model_dump_json(), ex=_ASKED_TTL_S)

    def _read(self, key: str, kind: type[Content]) -> Content | None:
        with answering():
            return _parse(self._connection.get(key), kind)

    def _changed(
        self, key: str, kind: type[Content], change: Callable[[Content | None], Content | None]
    ) -> Content | None:
        """Replace a message by what `change` makes of it, as one transaction; nothing where that is None."""
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            while True:
                try:
                    pipeline.watch(key)
                    changed = change(_parse(pipeline.get(key), kind))
                    if changed is None:
                        return None
                    pipeline.multi()
                    pipeline.set(key, changed.model_dump_json())
                    pipeline.execute()
                    return changed
                except redis.exceptions.WatchError:
                    continue


def _parse(content: bytes | None, kind: type[Content]) -> Content | None:
    """None also for a message of another version of the contract: the next one takes its place."""
    try:
        return None if content is None else kind.model_validate_json(content)
    except ValidationError as error:
        log.error("the %s is not of this version and does not count: %s", kind.__name__, error)
        return None
