"""A cost model learned from measured programs: gradient-boosted trees on what the analytic estimate gets wrong.

The only file that imports LightGBM. A model's folder: trees.txt (LightGBM's text format), cost.json (columns, words,
doubt, device, how it was made) and a model card. Trees are data: loading a model runs no code of its author.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import lightgbm
import numpy as np
from pydantic import BaseModel, ConfigDict

from sparsesmith.families import FAMILIES
from sparsesmith.tuning.columns import columns_of, matrix_of
from sparsesmith.tuning.cost import Doubt
from sparsesmith.tuning.grid import Choices, FloatArray, Grid

TREES_FILE = "trees.txt"
DESCRIPTION_FILE = "cost.json"
ESTIMATE = "log_estimate"
CATEGORIES = ("family",)

NUM_ROUNDS = 400
PARAMETERS: Mapping[str, object] = {
    "objective": "regression",
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbose": -1,
}
SLOWNESS = 2.0
"""A program counts by (best time / its time) to this power: the order at the front is what matters."""


@dataclass(frozen=True, eq=False)
class Table:
    """Measured programs of one workload."""

    columns: Mapping[str, FloatArray]
    """Each of shape [programs]."""
    log_times: FloatArray
    """Shape [programs]."""


class Description(BaseModel):
    """What a model's trees need to be asked, and where they come from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    device: str
    """As the evaluator names it: `NVIDIA H200`."""
    also_for: list[str] = []
    """Devices that nothing was trained on, where its order was measured to be better than that of the estimates."""
    columns: list[str]
    words: dict[str, int]
    doubt: dict[str, float]
    num_programs: int
    num_workloads: int
    num_patterns: int
    left_out: list[str]
    """Families that were the fastest of no training workload."""
    seldom_seen: list[str]
    """Families that were measured on few training workloads."""
    sources: list[str]
    """Files of records, by name."""


class BoostedCost:
    """A cost model of one device."""

    def __init__(self, booster: lightgbm.Booster, description: Description) -> None:
        self._booster = booster
        self.description = description

    @property
    def name(self) -> str:
        return f"cost model of {self.device}"

    @property
    def device(self) -> str:
        return self.description.device

    def serves(self, device: str) -> bool:
        """Whether it is for a device, by the name that evaluators give it."""
        return device == self.device or device in self.description.also_for

    @property
    def doubt(self) -> Doubt:
        return Doubt(**self.description.doubt)

    @property
    def left_out(self) -> frozenset[str]:
        return frozenset(self.description.left_out)

    @property
    def seldom_seen(self) -> frozenset[str]:
        return frozenset(self.description.seldom_seen) | self.never_seen

    @property
    def never_seen(self) -> frozenset[str]:
        return frozenset(name for name in FAMILIES if f"family={name}" not in self.description.words)

    def knows(self, operation: str) -> bool:
        """Whether it was shown programs of the operation's families."""
        families = (family.name for family in FAMILIES.values() if family.operation == operation)
        return any(f"family={name}" in self.description.words for name in families)

    def log_costs(self, grid: Choices) -> FloatArray:
        """Of a grid that it knows the operation of. Raises TypeError for a task's."""
        if not isinstance(grid, Grid):
            raise TypeError("a learned cost model was shown matrices only")
        return self.log_costs_of(columns_of(grid, self.description.words))

    def log_costs_of(self, columns: Mapping[str, FloatArray]) -> FloatArray:
        """As `log_costs`, from columns made before."""
        return predicted(self._booster, self.description.columns, columns)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._booster.save_model(folder / TREES_FILE)
        (folder / DESCRIPTION_FILE).write_text(self.description.model_dump_json(indent=1) + "\n", encoding="utf-8")


def load_boosted_cost(folder: Path) -> BoostedCost:
    """Raises OSError or ValueError for a folder that holds no model."""
    text = (folder / DESCRIPTION_FILE).read_text(encoding="utf-8")
    description = Description.model_validate(json.loads(text))
    trees = (folder / TREES_FILE).read_text(encoding="utf-8")
    try:
        booster = lightgbm.Booster(model_str=trees)
    except lightgbm.basic.LightGBMError as error:
        raise ValueError(f"{folder / TREES_FILE}: {error}") from error
    return BoostedCost(booster, description)


def train(tables: Sequence[Table], names: list[str]) -> lightgbm.Booster:
    """Trees for the logarithm of time over estimate."""
    rows = np.concatenate([matrix_of(table.columns, names) for table in tables])
    labels = np.concatenate([table.log_times - table.columns[ESTIMATE] for table in tables])
    weights = np.concatenate([np.exp(-SLOWNESS * (table.log_times - table.log_times.min())) for table in tables])
    data = lightgbm.Dataset(rows, labels, weight=weights, feature_name=names, categorical_feature=list(CATEGORIES))
    return lightgbm.train(dict(PARAMETERS), data, NUM_ROUNDS)


def predicted(booster: lightgbm.Booster, names: list[str], columns: Mapping[str, FloatArray]) -> FloatArray:
    """Logarithms of microseconds, shape [prospects]."""
    corrections = booster.predict(matrix_of(columns, names), num_threads=1)
    return np.asarray(corrections, np.float64) + columns[ESTIMATE]


def described(doubt: Doubt) -> dict[str, float]:
    """As a description keeps it."""
    return {name: round(value, 5) for name, value in asdict(doubt).items()}
