"""Searches under way: who asks for the same meanwhile gets the same answer."""

import asyncio
from collections.abc import Awaitable, Callable

from services.generator.orders import KernelOrder
from sparsesmith_proto.api import KernelReport


class JoinedSearches:
    """Of one service. All methods belong to one event loop."""

    def __init__(self) -> None:
        self._under_way: dict[str, asyncio.Future[KernelReport | None]] = {}

    async def run(self, order: KernelOrder, search: Callable[[], Awaitable[KernelReport]]) -> KernelReport:
        """The report of `search`, or of an equal one that was under way and came to an answer.

        One that is cancelled or fails decides nothing for those who joined it: the first of them searches.
        """
        question = f"{order.workload.model_dump_json()} {order.options.model_dump_json()}"
        while order.use_cache and (other := self._under_way.get(question)) is not None:
            await asyncio.wait([other])
            if (report := other.result()) is not None:
                return report
        return await self._lead(question, search)

    async def _lead(self, question: str, search: Callable[[], Awaitable[KernelReport]]) -> KernelReport:
        answer: asyncio.Future[KernelReport | None] = asyncio.get_running_loop().create_future()
        self._under_way[question] = answer
        report = None
        try:
            report = await search()
            return report
        finally:
            if self._under_way.get(question) is answer:
                del self._under_way[question]
            answer.set_result(report)
