"""Arms of a comparison at equal seconds (`benchmarks.tuning.equal_seconds`): where each one's candidates come from."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Literal, get_args

import torch

from benchmarks.learning.conditioning import ShownInstead, Unreported
from benchmarks.learning.serving import idle_sampler, serving_sampler
from services.generator.policy.sampling import PolicySampler, Warmth
from services.generator.policy.value_filter import ValueFilter
from services.generator.search import STRATEGIES, Sources, Standing, Strategy
from services.generator.search.allocator import Allocator
from services.generator.search.families import FIRST_BATCH, NEXT_BATCHES, FamilyProposer
from services.generator.search.proposer import Exhausted
from services.generator.search.standing import Batch
from services.generator.search.strategy import allotted
from services.generator.settings import GeneratorSettings
from services.generator.task import TuningTask
from services.generator.writing import Writers
from services.generator.writing.policy import POLICY, Editor
from sparsesmith.errors import InvalidOption
from sparsesmith.families import FamilyInstance
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.checkpoint import load_policy, save_policy, save_tokenizer
from sparsesmith.program.atomics import allowed_texts
from sparsesmith.tuning.grid import grid_of_problem
from sparsesmith.tuning.models import CostModels
from sparsesmith.tuning.tuner import TuningLimits
from sparsesmith_proto.api import SearchStrategy, SourceName

Arm = Literal[
    "families",
    "on",
    "auto",
    "mutate",
    "down",
    "random",
    "polish",
    "draws",
    "mutants",
    "edits",
    "unreported",
    "sample",
    "shuffled",
    "blind",
    "learned",
    "sample-learned",
    "warm",
    "sample-warm",
    "valued",
    "sample-valued",
]
ARMS: tuple[Arm, ...] = get_args(Arm)
DEFAULT_ARMS: tuple[Arm, ...] = ("families", "on", "auto", "mutate", "down", "random")

WARM: frozenset[Arm] = frozenset({"warm", "sample-warm"})
"""Whose samples are warm."""
VALUED: frozenset[Arm] = frozenset({"valued", "sample-valued"})
"""Whose samples the value model of `--value` chooses from."""
SHIPPED: frozenset[Arm] = (
    frozenset[Arm]({"auto", "mutate", "edits", "unreported", "sample", "shuffled", "blind"}) | WARM | VALUED
)
"""Arms of one engine, with the policy of `--policy`."""
LEARNED: frozenset[Arm] = frozenset({"learned", "sample-learned"})
"""Likewise, of `--learned`."""
WARMTH = Warmth(2.0, min_p=0.1)
ALONE: frozenset[Arm] = frozenset({"sample", "shuffled", "blind", "sample-learned", "sample-warm", "sample-valued"})
"""Arms without families."""

MOST_CANDIDATES = 4096
NO_END = TuningLimits(patience=MOST_CANDIDATES, hope=-1.0)

Samplers = Mapping[Arm, PolicySampler]
"""Of the arms that have one."""


@dataclass(frozen=True)
class Models:
    """What ranks candidates before they are graded."""

    cost: CostModels
    value: ValueFilter | None = None
    """Of the arms that have one."""


def search_of(arm: Arm) -> SearchStrategy:
    """As an order names it."""
    if arm in ALONE:
        return "sample"
    return "families" if arm in ("families", "on", "polish", "draws") else "auto"


def sources_of(arm: Arm, sampler: PolicySampler | None, models: Models) -> Sources:
    """As the generator's settings make them, with what the arm adds."""
    settings = GeneratorSettings()
    sources = Sources(sampler, settings.batch_candidates, settings.samples_in_flight, models.cost)
    if arm in VALUED:
        return replace(sources, value_filter=models.value)
    if arm in ("edits", "unreported") and sampler is not None:
        editor = Editor(sampler, POLICY, settings.samples_in_flight)
        return replace(sources, edits=True, writers=Writers(editor=editor))
    return replace(sources, mutates=arm in ("mutate", "mutants"), polishes=arm == "polish")


class DrawProposer:
    """Programs of the families' grid by chance, the same in each run of a name, in batches as large as the tuner's; see
    Proposer."""

    name: SourceName = "families"
    is_busy = False
    is_ready = False
    patience_s = 0.0

    def __init__(self, task: TuningTask) -> None:
        self._task = task
        self._draws = draws(task)
        self._num_sent = 0

    async def propose(self, size: int, standing: Standing) -> Batch:
        """See Proposer."""
        most = NEXT_BATCHES if self._num_sent else FIRST_BATCH
        batch = await asyncio.to_thread(self._next, min(size, most))
        if not batch:
            raise Exhausted
        return batch

    async def ready(self) -> None:
        """It is never busy."""

    async def close(self) -> None:
        """Nothing is held."""

    def _next(self, size: int) -> Batch:
        drawn = list(islice(self._draws, size))
        self._num_sent += len(drawn)
        first = self._num_sent - len(drawn)
        return tuple(each.candidate(f"{self._task.run_id}-d{number}") for number, each in enumerate(drawn, first))


def draws(task: TuningTask) -> Iterator[FamilyInstance]:
    """Each program of the grid once, in an order that the run's name gives."""
    grid = grid_of_problem(task.problem, task.order.options.reorder)
    allows, seen = allowed_texts(task.problem.workload), set[str]()
    order = list(range(len(grid.entries)))
    Random(task.run_id).shuffle(order)
    for index in order:
        instance = grid.instance(index)
        if instance.program not in seen and allows(instance.program):
            seen.add(instance.program)
            yield instance


def families_drawn(task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]:
    """Until the grid or the budget is spent."""
    return allotted([DrawProposer(task)], Allocator(task.run_id), standing, sources.batch_candidates)


def families_on(task: TuningTask, sources: Sources, limit: int, standing: Standing) -> AsyncIterator[Batch]:
    """The tuner until its grid or its budget is spent."""
    proposer = FamilyProposer(task, sources.cost_models, limit, NO_END)
    return allotted([proposer], Allocator(task.run_id), standing, sources.batch_candidates)


STRATEGY: Mapping[Arm, Strategy] = {
    **{arm: STRATEGIES[search_of(arm)] for arm in ARMS},
    "on": families_on,
    "draws": families_drawn,
}


async def serving_samplers(stack: AsyncExitStack, arms: set[Arm], policy: Path, learned: Path | None) -> Samplers:
    """One engine a policy, until the stack is closed. `shuffled` is still shown the right matrix; see `showing`."""
    settings = GeneratorSettings(policy_dir=policy)
    found: dict[Arm, PolicySampler] = {}
    if shipped := SHIPPED & arms:
        found |= dict.fromkeys(shipped, await stack.enter_async_context(serving_sampler(settings)))
    if "blind" in arms:
        found["blind"] = showing(found["blind"], None)
    if "unreported" in arms:
        found["unreported"] = hiding_reports(found["unreported"])
    for arm in WARM & arms:
        found[arm] = warm(found[arm])
    if taught := LEARNED & arms:
        assert learned is not None, "asked for with its arms"
        with_learned = settings.model_copy(update={"policy_dir": learned})
        found |= dict.fromkeys(taught, await stack.enter_async_context(serving_sampler(with_learned)))
    if "down" in arms:
        found["down"] = idle_sampler(settings)
    if "random" in arms:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ss-random-")))
        random_policy(policy, folder)
        broken = settings.model_copy(update={"policy_dir": folder})
        found["random"] = await stack.enter_async_context(serving_sampler(broken))
    return found


def showing(sampler: PolicySampler, pattern: Pattern | None) -> PolicySampler:
    """The same engine, asked with another matrix in the right one's place, whatever is graded. None: with none; raises
    InvalidOption for a policy that reads its matrix in words."""
    if pattern is None and sampler.writer.encoder == "text":
        raise InvalidOption("blind: a policy that is asked in words has no embeddings", field="arms", value="blind")
    return PolicySampler(sampler.host, ShownInstead(sampler.writer, pattern), sampler.options)


def hiding_reports(sampler: PolicySampler) -> PolicySampler:
    """The same engine, shown parents without their reports."""
    return PolicySampler(sampler.host, Unreported(sampler.writer), sampler.options)


def warm(sampler: PolicySampler) -> PolicySampler:
    """The same engine, all of whose groups explore."""
    return PolicySampler(sampler.host, sampler.writer, replace(sampler.options, exploring_share=1.0, exploring=WARMTH))


def random_policy(policy: Path, folder: Path) -> None:
    """The policy with weights that nobody trained."""
    known = load_policy(policy)
    torch.manual_seed(0)
    for weights in [*known.model.parameters(), *known.encoder.parameters()]:
        if weights.dim() > 1:
            torch.nn.init.normal_(weights, std=0.02)
    save_policy(known, folder)
    save_tokenizer((policy / "tokenizer.json").read_text(encoding="utf-8"), folder)
