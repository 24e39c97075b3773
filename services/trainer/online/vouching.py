"""The trainer's part in a canary: what a generator's samples should have been taken with."""

import logging
import math
from collections.abc import Sequence

from services.trainer.online.batch import RecordReader, SampleBatch, assemble_samples
from services.trainer.online.learner import Learner
from services.trainer.online.prompts import Asked
from sparsesmith_proto.message import PolicyVersion
from sparsesmith_proto.policy import LogprobGap, ProbeQuestion, ProbeSample

log = logging.getLogger(__name__)

WORST_GAP = 1e6
"""Nats. Stands for a gap that is not finite: a message holds numbers only."""


class Vouching:
    """Answers questions about the shipped version and the one that was published last, and no others."""

    def __init__(self, learner: Learner, reader: RecordReader) -> None:
        self._learner = learner
        self._reader = reader

    def answer(self, question: ProbeQuestion, published: PolicyVersion) -> LogprobGap | None:
        """`published`: version of the learner's weights. None: not ours to say. Raises Unavailable without a store."""
        if question.version not in (0, published):
            return None
        batch = self._batch(question.samples)
        if batch is None:
            return None
        gap = self._learner.published_gap(batch, shipped=question.version == 0)
        log.info(
            "version %d in the engine: %.4f nats a telling token, %.3f a program from ours, %d tokens",
            question.version, gap.per_token, gap.per_program, gap.num_tokens,
        )  # fmt: skip
        return LogprobGap(
            probe_id=question.probe_id,
            version=question.version,
            per_token=_bounded(gap.per_token),
            per_program=_bounded(gap.per_program),
            num_tokens=gap.num_tokens,
        )

    def _batch(self, samples: Sequence[ProbeSample]) -> SampleBatch | None:
        asked: list[Asked] = []
        for each in samples:
            found = self._reader.asked(each.workload, each.sampled)
            if not isinstance(found, Asked):
                log.warning("a probe sample cannot be checked: %s", found)
                return None
            asked.append(found)
        return assemble_samples([each.sampled for each in samples], asked)


def _bounded(gap: float) -> float:
    return min(gap, WORST_GAP) if math.isfinite(gap) else WORST_GAP
