"""Search strategies: where the candidates of a request come from."""

from collections.abc import Mapping

from services.generator.search.auto import auto
from services.generator.search.families import families
from services.generator.search.sample import sample
from services.generator.search.strategy import Batch, Findings, Sources, Strategy
from sparsesmith_proto.api import SearchStrategy

STRATEGIES: Mapping[SearchStrategy, Strategy] = {"auto": auto, "families": families, "sample": sample}

__all__ = ["STRATEGIES", "Batch", "Findings", "Sources", "Strategy"]
