"""The cache of tuned kernels.

An answer serves a request for the same pattern, operation (scaled or not), element type, dense columns and axes, and
the same values where they are fixed, on the kind of GPU that the request names, else on one that is there now, by the
toolchain that this kind reported last, by the same search, with at least the request's budget. Where the search
samples, the policy version must be the same too; where it uses families, the release of this package.
`Cache-Control: no-cache` passes the cache by, and its answer replaces what was kept.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from pydantic import ValidationError

from services.generator.orders import KernelOrder
from sparsesmith.errors import Unavailable
from sparsesmith.operations import operation_named
from sparsesmith_proto.api import Budget, KernelReport
from sparsesmith_proto.message import Message

log = logging.getLogger(__name__)


async def _none() -> Sequence[str]:
    return ()


class KeptAnswers(Protocol):
    """`sparsesmith.transport.tuned_kernel_store.TunedKernelStore`."""

    def keep(self, question: str, gpu: str, device: str, answer: str, ttl_s: int) -> None: ...

    def find(self, question: str, gpus: Sequence[str]) -> str | None: ...


class KeptAnswer(Message):
    """An answer and what was spent on it."""

    budget: Budget
    report: KernelReport


class TunedKernelCache:
    """An outage of the store is a miss: the cache is never a reason to fail."""

    def __init__(self, store: KeptAnswers, ttl_s: int, gpus: Callable[[], Awaitable[Sequence[str]]] = _none) -> None:
        """`gpus`: names of the kinds of GPU that are there; none: it is not known, the one reported last counts."""
        self._store = store
        self._ttl_s = ttl_s
        self._gpus = gpus

    async def find(self, order: KernelOrder, policy_version: int | None) -> KernelReport | None:
        """`policy_version`: of the engine that serves now; None: none does."""
        if not order.use_cache or self._ttl_s == 0:
            return None
        gpu = order.options.gpu
        gpus = await self._gpus() if gpu is None else [gpu]
        try:
            text = await asyncio.to_thread(self._store.find, question(order, policy_version), gpus)
            kept = None if text is None else KeptAnswer.model_validate_json(text)
        except (Unavailable, ValidationError) as error:
            log.warning("the cache of tuned kernels is passed by: %s", error)
            return None
        return kept.report if kept is not None and covers(kept.budget, order.options.budget) else None

    async def keep(self, order: KernelOrder, report: KernelReport) -> None:
        if self._ttl_s == 0:
            return
        asked = question(order, max(report.search.policy_versions, default=None))
        device = f"{report.device.kind} {report.device.name} {report.device.toolchain}"
        text = KeptAnswer(budget=order.options.budget, report=report).model_dump_json()
        try:
            await asyncio.to_thread(self._store.keep, asked, report.device.gpu, device, text, self._ttl_s)
        except Unavailable as error:
            log.warning("an answer is not kept: %s", error)


def covers(spent: Budget, asked: Budget) -> bool:
    """Whether an answer found with one budget is good enough for another."""
    return spent.candidates >= asked.candidates and spent.seconds >= asked.seconds


def question(order: KernelOrder, policy_version: int | None) -> str:
    """What was asked, as one line: the key of the cache."""
    workload, search = order.workload, order.options.search
    parts: list[object] = [workload.pattern, workload.operation, workload.element_type, workload.num_dense_cols, search]
    if workload.values is not None:
        parts.append(f"values={workload.values}")
    if workload.deterministic:
        parts.append("deterministic")
    if workload.alpha_beta:
        parts.append("alpha_beta")
    if order.options.reorder != "keep":
        parts.append(f"reorder={order.options.reorder}")
    if (meaning := operation_named(workload.operation).version) > 1:
        parts.append(f"version={meaning}")
    parts += [f"{name}={size}" for name, size in sorted(workload.axes.items())]
    match search:
        case "families":
            parts.append(_release())
        case "refine":
            parts += [_release(), order.options.refine.model_dump_json()]
        case "sample":
            parts.append(policy_version)
        case "auto" | "instant":
            parts += [_release(), policy_version]
    return ":".join(map(str, parts))


def _release() -> str:
    try:
        return version("sparsesmith")
    except PackageNotFoundError:
        return "unreleased"
