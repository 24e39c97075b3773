"""What a writer makes of the programs that were graded: the source behind `search="refine"`."""

import asyncio
import logging
from collections import deque
from itertools import islice

from services.generator.search.chains import OF_KNOBS, Chain, Node, ask_about
from services.generator.search.proposer import Exhausted
from services.generator.search.sampled_knobs import SampledKnobs
from services.generator.search.standing import Awaited, Batch, Standing
from services.generator.task import TuningTask
from services.generator.writing import Attempt, NoAnswer, NothingNew, Writer
from sparsesmith.errors import Unavailable
from sparsesmith_proto.api import Refinement, SourceName
from sparsesmith_proto.evaluation import EvaluationReport
from sparsesmith_proto.kernel import Candidate, Evaluation, Mutated, Sampled, Written

log = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Questions in a row that came to nothing: the writer is left."""


class WrittenProposer:
    """Children of the fastest programs, in rhythm with what is graded; see Proposer.

    Chains take turns: while what one has written is graded, the other is written.
    """

    def __init__(self, task: TuningTask, limit: int, loop: Refinement, writer: Writer) -> None:
        """`limit`: candidates of the whole search. `loop`: how far it goes."""
        self._writer = writer
        self._limit = limit
        takes_time = writer.at_once is not None
        self._chains = deque(
            Chain(loop, [Node(None)] if each == "words" else [], in_rounds=takes_time) for each in writer.beginnings
        )
        self._beginning = next(
            chain for chain, each in zip(self._chains, writer.beginnings, strict=True) if each == "programs"
        )
        self._chain_of: dict[str, Chain] = {}
        """Of what was written, by candidate."""
        self._attempts: dict[str, Attempt] = {}
        self._writing: dict[asyncio.Task[Candidate], tuple[Chain, Node]] = {}
        self._ready: deque[Candidate] = deque()
        self._knobs = SampledKnobs(task) if writer.repairs else None
        self._num_asked = 0
        self._num_failed = 0
        """Questions in a row."""
        self._num_read = 0
        self._awaited: Awaited | None = None

    @property
    def name(self) -> SourceName:
        return self._writer.name

    @property
    def patience_s(self) -> float:
        return self._writer.patience_s

    @property
    def is_busy(self) -> bool:
        """Whether answers or grades are waited for."""
        return self._awaited is not None

    @property
    def is_ready(self) -> bool:
        has_news = self._awaited is not None and self._awaited.is_there
        return has_news or bool(self._ready) or any(task.done() for task in self._writing)

    async def propose(self, size: int, standing: Standing) -> Batch:
        """See Proposer."""
        self._awaited, num_known = None, standing.num_back
        standing.of(self.name).writing = self._writer.account
        await asyncio.to_thread(self._read, standing)
        left = self._limit - standing.num_back - standing.num_under_way
        size = min(size, left)
        self._gather()
        if size <= 0 or (self._num_failed >= MOST_FAILURES and not self._ready):
            raise Exhausted
        if self._knobs is not None and (settings := await asyncio.to_thread(self._knobs.next_batch, size, standing)):
            return settings
        while self._ask(size, left) and self._writer.at_once is None:
            await asyncio.wait(self._writing)
            self._gather()
        batch = tuple(islice(self._ready, size))
        for _ in batch:
            self._ready.popleft()
        if not batch and not self._writing and standing.num_under_way <= 0 and standing.num_back == num_known:
            raise Exhausted
        if not batch or self._writing:
            self._awaited = Awaited(standing, num_known)
        return batch

    async def ready(self) -> None:
        if self._awaited is None:
            return
        news = asyncio.create_task(self._awaited.come())
        try:
            await asyncio.wait({news, *self._writing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
            await asyncio.gather(news, return_exceptions=True)

    async def close(self) -> None:
        for task in self._writing:
            task.cancel()
        await asyncio.gather(*self._writing, return_exceptions=True)

    def _ask(self, size: int, left: int) -> int:
        """Start questions, the chains in turns, as far as there is room and something to change; their number. `left`:
        candidates that may still be graded."""
        at_once, num_made = self._writer.at_once, len(self._ready) + len(self._writing)
        room = size - num_made if at_once is None else min(at_once - len(self._writing), left - num_made)
        started = 0
        while started < room and (found := self._next()) is not None:
            chain, node = found
            asked = self._writer.write(ask_about(node, self._num_asked))
            self._num_asked += 1
            self._writing[asyncio.create_task(asked)] = chain, node
            started += 1
        return started

    def _next(self) -> tuple[Chain, Node] | None:
        """Of the first chain in turn that has one, the open program that was asked about least in this round."""
        for _ in range(len(self._chains)):
            chain = self._chains[0]
            self._chains.rotate(-1)
            under_way = [node for other, node in self._writing.values() if other is chain]
            open_ = sorted(chain.open(), key=under_way.count)
            if open_:
                return chain, open_[0]
        return None

    def _gather(self) -> None:
        """What was written meanwhile. Raises Unavailable, LimitExceeded as the writer does."""
        for task in [task for task in self._writing if task.done()]:
            chain, node = self._writing.pop(task)
            try:
                candidate = task.result()
            except NothingNew:
                node.is_spent = True
                node.num_children -= 1
            except NoAnswer as error:
                self._note_failure(error.reason, error)
            except Unavailable as error:
                self._note_failure("unavailable", error)
                raise
            else:
                self._num_failed = 0
                self._chain_of[candidate.candidate_id] = chain
                self._ready.append(candidate)

    def _note_failure(self, reason: str, error: Exception) -> None:
        self._num_failed += 1
        log.info("%s gave no answer: %s", self.name, error)
        if self._writer.account is not None:
            self._writer.account.failed(reason)

    def _read(self, standing: Standing) -> None:
        for report in standing.after(self._num_read):
            self._num_read += 1
            for evaluation in report.evaluations:
                self._enter(evaluation, report)

    def _enter(self, evaluation: Evaluation, report: EvaluationReport) -> None:
        candidate = evaluation.candidate
        own = self._chain_of.get(candidate.candidate_id.partition(OF_KNOBS)[0])
        parent, generation = _descent(candidate)
        before = None if parent is None else self._attempts.get(parent)
        attempt = Attempt(candidate, evaluation.outcome, report, generation, before)
        self._attempts[candidate.candidate_id] = attempt
        self._credit(evaluation, before)
        chain = own or self._beginning
        if attempt.median_us is None:
            if own is not None and self._writer.repairs and not candidate.settings:
                chain.enter_failure(attempt)
        elif self._writer.takes(attempt):
            chain.enter(attempt)

    def _credit(self, evaluation: Evaluation, before: Attempt | None) -> None:
        origin, account = evaluation.candidate.origin, self._writer.account
        if account is not None and isinstance(origin, Written | Sampled) and not evaluation.candidate.settings:
            account.graded(evaluation, origin, None if before is None else before.median_us)


def _descent(candidate: Candidate) -> tuple[str | None, int]:
    """Whose child a candidate is, and how many changes it has behind it."""
    match candidate.origin:
        case (
            Mutated(parent=parent, generation=generation)
            | Written(parent=parent, generation=generation)
            | Sampled(parent=parent, generation=generation)
        ):
            return parent, generation
        case _:
            return None, 0
