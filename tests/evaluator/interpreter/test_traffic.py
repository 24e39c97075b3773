"""The traffic model orders programs by what they move, issue and wait for, and says that it estimates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from services.evaluator.interpreter import H200, Buffer, Counts, LaunchReport, estimate_time

RUN = Callable[..., LaunchReport]
GRID_BLOCKS = 1000


def make_counts(**changes: Any) -> Counts:
    return replace(Counts(blocks=1000, warp_instructions=8000, longest_warp_instructions=1), **changes)


def test_an_empty_launch_costs_its_overhead() -> None:
    estimate = estimate_time(Counts(), 1)
    assert estimate.model == "sector-v2"
    assert estimate.total_us == pytest.approx(H200.launch_overhead_us)


def test_a_cold_stream_takes_its_bytes_over_the_bandwidth() -> None:
    sectors = (1 << 30) // 32
    estimate = estimate_time(
        make_counts(unique_sectors_read=sectors, global_load_sectors=sectors), GRID_BLOCKS, warm=False
    )
    assert estimate.dram_us == pytest.approx((1 << 30) / H200.dram_bytes_per_us)
    rest_us = estimate.issue_us + estimate.longest_warp_us + H200.launch_overhead_us
    assert estimate.total_us == pytest.approx(estimate.dram_us + rest_us)
    assert rest_us < 0.05 * estimate.dram_us


def test_data_that_fits_the_l2_cache_comes_from_there_when_warm() -> None:
    sectors = (10 << 20) // 32
    counts = make_counts(unique_sectors_read=sectors, global_load_sectors=sectors)
    assert estimate_time(counts, GRID_BLOCKS).dram_us == 0
    assert estimate_time(counts, GRID_BLOCKS, warm=False).dram_us > 0
    assert estimate_time(counts, GRID_BLOCKS).l2_us == pytest.approx((10 << 20) / H200.l2_bytes_per_us)


def test_hits_in_the_first_level_cache_do_not_load_the_l2() -> None:
    counts = make_counts(global_load_sectors=100_000)
    assert (
        estimate_time(replace(counts, l1_hit_sectors=90_000), GRID_BLOCKS).l2_us
        < estimate_time(counts, GRID_BLOCKS).l2_us
    )


def test_counts_of_a_sample_are_scaled_to_the_grid() -> None:
    whole = make_counts(global_load_sectors=16_000)
    sample = make_counts(blocks=100, global_load_sectors=1_600, warp_instructions=800)
    assert estimate_time(sample, GRID_BLOCKS).l2_us == pytest.approx(estimate_time(whole, GRID_BLOCKS).l2_us)


def test_one_long_warp_keeps_the_launch_waiting() -> None:
    short, long = (
        estimate_time(make_counts(longest_warp_instructions=count), GRID_BLOCKS).total_us for count in (10, 10_000)
    )
    assert long - short == pytest.approx(9_990 * H200.clocks_per_instruction / H200.clock_mhz)


def test_strided_reads_are_estimated_slower_than_consecutive_ones(run: RUN) -> None:
    source = """extern "C" __global__ void k(const float* x, float* y, int stride) {
        int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i * stride % (1 << 18)]; }"""
    estimates = []
    for stride in (1, 33):
        x, y = np.zeros(1 << 18, np.float32), np.zeros(1 << 15, np.float32)
        report = run(source, 128, 256, Buffer("x", x, False), Buffer("y", y, True), stride)
        assert report.finding is None
        estimates.append(estimate_time(report.counts, 128, warm=False))
    assert estimates[1].dram_us > 4 * estimates[0].dram_us
    assert estimates[1].l2_us > 4 * estimates[0].l2_us
