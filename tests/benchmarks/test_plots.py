from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.report import plots
from benchmarks.report.plots import PLOT_KINDS, Plot, is_fresh, svg
from benchmarks.report.results import Suite, read_suites
from tests.benchmarks.suites import make_kernel, make_row, make_suite


def make_measured() -> Suite:
    rows = [
        make_row("small"),
        make_row("lost", make_kernel(20, products_against_best=None), **{"class": "graph"}),
        make_row("middle", nnz=200_000),
        make_row("large", make_kernel(8), nnz=20_000_000),
    ]
    (suite,) = read_suites([make_suite(*rows)])
    return suite


@pytest.mark.parametrize("plot", PLOT_KINDS, ids=lambda plot: plot.name)
def test_the_same_results_give_the_same_bytes(plot: Plot) -> None:
    suite = make_measured()
    text = svg(plot, suite)
    assert text == svg(plot, suite)
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("plot", PLOT_KINDS, ids=lambda plot: plot.name)
def test_axes_are_labelled(plot: Plot) -> None:
    text = svg(plot, make_measured())
    units = {"speedup": "speed-up", "classes": "speed-up", "roofline": "GB/s", "break-even": "total time, s"}
    assert units[plot.name] in text
    assert "spmv float32, NVIDIA H200" in text


@pytest.mark.parametrize(
    "changed",
    [lambda suite: replace(suite, rows=suite.rows[1:]), lambda suite: replace(suite, date="later")],
    ids=["fewer rows", "another date"],
)
def test_a_plot_of_other_results_is_out_of_date(
    changed: Callable[[Suite], Suite], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "PLOTS", tmp_path)
    plot, suite = PLOT_KINDS[0], make_measured()
    assert not is_fresh(plot, suite)
    plot.path(suite).write_text(svg(plot, suite), encoding="utf-8")
    assert is_fresh(plot, suite)
    assert not is_fresh(plot, changed(suite))


def test_a_suite_without_costs_has_no_break_even_plot() -> None:
    (suite,) = read_suites([make_suite(make_row(search=None))])
    assert [plot.name for plot in PLOT_KINDS if plot.applies(suite)] == ["speedup", "classes", "roofline"]
