"""What the stories of the generator work with."""

from dataclasses import dataclass

from services.generator.gpus import Gpus
from services.generator.search import Sources
from services.generator.search.grading import Evaluations, GradingLimits
from services.generator.search.instant import InstantTools
from services.generator.search.kernel_cache import TunedKernelCache
from services.generator.search.trials import Trials


@dataclass(frozen=True)
class Tools:
    """Shared by all jobs."""

    sources: Sources
    evaluations: Evaluations
    limits: GradingLimits
    cache: TunedKernelCache
    trials: Trials
    gpus: Gpus
    instant: InstantTools | None = None
    """None: no kernel is handed out before a search."""
