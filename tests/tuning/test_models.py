"""Which cost model is used where, and what a learned one must survive."""

import logging
from pathlib import Path

import numpy as np
import pytest

from sparsesmith.tuning.boosted import BoostedCost, load_boosted_cost
from sparsesmith.tuning.columns import columns_of
from sparsesmith.tuning.cost import AnalyticCost
from sparsesmith.tuning.models import CostModels
from tests.tuning.grids import make_grid, make_pattern
from tests.tuning.trained import WORDS, make_model


def test_trees_learn_what_the_estimate_gets_wrong_and_come_back_from_their_folder(tmp_path: Path) -> None:
    model = make_model()
    model.save(tmp_path)
    grid = make_grid("csr_scalar", "csr_vector", pattern=make_pattern(650))
    loaded = load_boosted_cost(tmp_path)
    assert loaded.log_costs(grid) == pytest.approx(model.log_costs(grid))
    assert loaded.description == model.description
    correction = loaded.log_costs(grid) - np.log(grid.estimates())
    scalar = np.array(grid.families) == "csr_scalar"
    assert correction[scalar].mean() - correction[~scalar].mean() == pytest.approx(np.log(2.0), abs=0.1)


def test_a_family_that_the_model_has_never_seen_is_ranked_all_the_same() -> None:
    grid = make_grid("csr_vector", "csr_stream")
    words = {name: number for name, number in WORDS.items() if name != "family=csr_stream"}
    columns = columns_of(grid, words)
    assert np.isnan(columns["family"]).any()
    assert np.isfinite(make_model().log_costs_of(columns)).all()


def test_a_column_that_a_grid_does_not_have_is_missing_and_no_error() -> None:
    grid = make_grid("csr_vector")
    columns = columns_of(grid, WORDS)
    del columns["parameter_unroll"]
    assert np.isfinite(make_model().log_costs_of(columns)).all()


@pytest.mark.parametrize("folder", [None, Path("no-such-folder")])
def test_without_a_model_the_analytic_estimate_is_used(folder: Path | None) -> None:
    models = CostModels(folder)
    assert isinstance(models.expected(), AnalyticCost)
    assert isinstance(models.on("NVIDIA H200"), AnalyticCost)


def test_a_damaged_model_is_a_word_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_model().save(tmp_path)
    (tmp_path / "trees.txt").write_text("tree\nnonsense")
    with caplog.at_level(logging.WARNING):
        assert isinstance(CostModels(tmp_path).expected(), AnalyticCost)
    assert "no cost model at" in caplog.text


def test_a_model_serves_its_device_and_no_other(tmp_path: Path) -> None:
    make_model("NVIDIA H200").save(tmp_path)
    models = CostModels(tmp_path)
    learned = models.expected()
    assert isinstance(learned, BoostedCost)
    assert models.on("NVIDIA H200") is learned
    assert isinstance(models.on("PTX interpreter"), AnalyticCost)
    assert isinstance(models.expected(), AnalyticCost), "the device seen last is expected"


def test_a_model_serves_a_device_alike_for_which_it_was_measured_to_rank_well(tmp_path: Path) -> None:
    model = make_model("NVIDIA H200")
    alike = model.description.model_copy(update={"also_for": ["NVIDIA H100 80GB HBM3"]})
    BoostedCost(model._booster, alike).save(tmp_path)
    models = CostModels(tmp_path)
    assert models.on("NVIDIA H100 80GB HBM3").name == "cost model of NVIDIA H200"
    assert models.on("NVIDIA H200") is models.on("NVIDIA H100 80GB HBM3")
    assert isinstance(models.on("NVIDIA L40S"), AnalyticCost)


def test_a_family_younger_than_the_model_counts_as_hardly_known_and_is_never_chosen_without_measuring() -> None:
    model = make_model()
    words = {word: number for word, number in WORDS.items() if word != "family=csr_vector"}
    older = BoostedCost(model._booster, model.description.model_copy(update={"words": words}))
    assert model.never_seen == frozenset()
    assert older.never_seen == older.seldom_seen == {"csr_vector"}
