"""Requests on their way to jobs: each for a kind of GPU that is there, and one that comes again means what it meant."""

from services.generator.gpus import Gpus
from services.generator.jobs.jobs import Jobs
from services.generator.jobs.ledger import Ledger
from services.generator.orders import Order
from sparsesmith.operations import Problem
from sparsesmith.transport.job_store import Asker
from sparsesmith_proto.api import JobStatus


class Arrivals:
    """What a request goes through before it is a job."""

    def __init__(self, jobs: Jobs, ledger: Ledger, gpus: Gpus) -> None:
        self._jobs = jobs
        self._ledger = ledger
        self._gpus = gpus

    async def accept(self, order: Order, problem: Problem, idempotency_key: str | None, asker: Asker) -> JobStatus:
        """As `Jobs.accept`, for the kind of GPU that the order asks for. A request that comes again means the kind that
        it meant, though that has left. Raises InvalidOption where no evaluator has the kind, too."""
        if order.wanted_gpu is None:
            return await self._jobs.accept(order, problem, idempotency_key, asker)
        earlier = await self._ledger.earlier(idempotency_key, asker)
        gpu = await self._gpus.named(order.wanted_gpu, None if earlier is None else earlier.wanted_gpu)
        return await self._jobs.accept(order.on(gpu), problem, idempotency_key, asker)
