"""Candidates of jobs and what became of them, generator to generator; kept about as long as the job."""

import logging
import zlib
from collections.abc import Sequence

from pydantic import ValidationError

from sparsesmith.transport.connection import Redis, answering
from sparsesmith.transport.job_store import History, candidates_key
from sparsesmith_proto.api import CandidatePage, TriedCandidate

log = logging.getLogger(__name__)

SPARE_S = 3600
"""A job ends after its last candidate."""


class CandidateStore:
    """One list a job, in the order of grading, each entry compressed."""

    def __init__(self, connection: Redis, history: History | None = None) -> None:
        self._connection = connection
        self._ttl_s = (history or History()).seconds + SPARE_S

    def clear(self, job_id: str) -> None:
        """A new run of the job starts over. Raises Unavailable."""
        with answering():
            self._connection.delete(candidates_key(job_id))

    def add(self, job_id: str, candidates: Sequence[TriedCandidate]) -> None:
        """Raises Unavailable."""
        if not candidates:
            return
        entries = [zlib.compress(candidate.model_dump_json().encode()) for candidate in candidates]
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.rpush(candidates_key(job_id), *entries)
            pipeline.expire(candidates_key(job_id), self._ttl_s)
            pipeline.execute()

    def page(self, job_id: str, offset: int, limit: int) -> CandidatePage:
        """Up to `limit` candidates from a place on; none of an unknown job. Raises Unavailable."""
        with answering(), self._connection.pipeline(transaction=True) as pipeline:
            pipeline.llen(candidates_key(job_id))
            pipeline.lrange(candidates_key(job_id), offset, offset + limit - 1)
            num_candidates, entries = pipeline.execute()
        parsed = [_parsed(job_id, offset + place, entry) for place, entry in enumerate(entries)]
        end = offset + len(entries)
        return CandidatePage(
            job_id=job_id,
            num_candidates=num_candidates,
            candidates=tuple(candidate for candidate in parsed if candidate is not None),
            next_offset=end if entries and end < num_candidates else None,
        )


def _parsed(job_id: str, place: int, entry: bytes) -> TriedCandidate | None:
    """None for an entry of another version of the contract, which is logged. Its number is its place."""
    try:
        candidate = TriedCandidate.model_validate_json(zlib.decompress(entry))
    except (zlib.error, ValidationError) as error:
        log.error("candidate %d of job %s is not of this version and is left out: %s", place, job_id, error)
        return None
    return candidate.model_copy(update={"number": place})


def _key(job_id: str) -> str:
    return f"sparsesmith:job:{job_id}:candidates"
