"""The generator's ends of the channels to evaluators and trainer, all on one Redis."""

from services.generator.search.evaluations import WorkQueue
from sparsesmith.transport.accounts import Accounts
from sparsesmith.transport.candidate_store import CandidateStore
from sparsesmith.transport.connection import connect, is_answering
from sparsesmith.transport.gpu_kinds import GpuKinds
from sparsesmith.transport.job_store import History, JobStore
from sparsesmith.transport.keys import KeyStore
from sparsesmith.transport.metrics_channel import MetricsChannel
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.permalinks import Permalinks
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.quarantine import Quarantine
from sparsesmith.transport.queue import EvaluationQueue, QueueLimits, living_workers
from sparsesmith.transport.shelf import ShelfLimits
from sparsesmith.transport.tuned_kernel_store import TunedKernelStore


class Channels:
    """Does not connect yet: a Redis that is down is waited for when it is used."""

    def __init__(
        self,
        redis_url: str,
        limits: ShelfLimits | None = None,
        history: History | None = None,
        queue: QueueLimits | None = None,
    ) -> None:
        """`limits`: of the matrices that are stored; `history`: of the jobs that have ended."""
        self._connection = connect(redis_url)
        self.jobs = JobStore(self._connection, history)
        self.patterns = PatternStore(self._connection, limits)
        self.candidates = CandidateStore(self._connection, history)
        self.evaluations: WorkQueue = EvaluationQueue(self._connection, queue)
        self.gpus = GpuKinds(self._connection)
        self.policy = PolicyChannel(self._connection)
        self.metrics = MetricsChannel(self._connection)
        self.tuned_kernels = TunedKernelStore(self._connection)
        self.keys = KeyStore(self._connection)
        self.accounts = Accounts(self._connection)
        self.permalinks = Permalinks(self._connection)
        self.quarantine = Quarantine(self._connection)

    def is_answering(self) -> bool:
        return is_answering(self._connection)

    def num_evaluators(self) -> int:
        """With a fresh heartbeat. Raises Unavailable."""
        return len(living_workers(self._connection))

    def num_running_evaluations(self) -> int:
        """Evaluation jobs that an evaluator has in hand. Raises Unavailable."""
        return EvaluationQueue(self._connection).num_running()

    def queue_depth(self, queue: str | None = None) -> int:
        """Evaluation jobs that wait, in one queue or all. Raises Unavailable."""
        return EvaluationQueue(self._connection).depth(queue)
