"""The story of the generator: from an order to the answer."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing

from services.generator.search import STRATEGIES, Standing
from services.generator.search.grading import graded
from services.generator.search.instant import hand_out, lead_first
from services.generator.search.verdict import Progress, conclude
from services.generator.task import TuningTask
from services.generator.tools import Tools
from sparsesmith_proto.api import KernelReport, Running


async def generate_kernels(task: TuningTask, tools: Tools, tell: Callable[[Running], Awaitable[None]]) -> KernelReport:
    """Find the fastest kernel for a pattern that the budget allows, or say that the library's routine is best.

    The sources of the strategy propose candidates in batches, each as far as it pays; evaluators compile, check and
    time them; what they found is there for the next batch; the best so far is told at the start and after every report;
    a kernel that is wanted at once is handed out before, graded first of all and withdrawn if it fails;
    the search ends with the budget or when the sources have had enough. Raises Unavailable where nothing could be
    graded at all, LimitExceeded where the workload is beyond the device or the budget.
    """
    progress, standing = Progress(task), Standing()
    options = task.order.options
    await tell(progress.running())
    if options.search == "instant":
        task = await _led(task, progress, tools, tell)
    batches = STRATEGIES[options.search](task, tools.sources, options.budget.candidates, standing)
    if task.lead is not None:
        batches = lead_first(task.lead, batches, standing)
    async with aclosing(graded(batches, task, tools.evaluations, tools.limits, standing.lost)) as reports:
        async for report in reports:
            standing.add(report)
            progress.add(report)
            await tools.trials.add(task, report)
            await tell(progress.running())
    answer = conclude(progress, standing.sources())
    await tools.cache.keep(task.order, answer)
    return answer


async def _led(
    task: TuningTask, progress: Progress, tools: Tools, tell: Callable[[Running], Awaitable[None]]
) -> TuningTask:
    """With a kernel that is there before the search, and told; as it was where there is none."""
    if tools.instant is None or (handed := await hand_out(task, tools.sources.cost_models, tools.instant)) is None:
        return task
    progress.hand_out(handed.kernel)
    await tell(progress.running())
    return handed.task
