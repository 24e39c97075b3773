"""Result files of suites, as small as they can be."""

from typing import Any


def make_times(us: float, **changes: Any) -> dict[str, Any]:
    return {"us": us, "low_us": 0.99 * us, "high_us": 1.01 * us, "cold_us": 2 * us, "stable": True} | changes


def make_kernel(us: float = 5, **changes: Any) -> dict[str, Any]:
    return {
        "family": "csr_vector",
        "parameters": {"lanes": 8},
        **make_times(us),
        "storage_format": "csr",
        "format_bytes": 80_000,
        "launches": 1,
        "registers": 32,
        "conversion_ms": 1.0,
        "tuning_s": 2.0,
        "products_against_best": 400_000,
        "products_against_default": 200_000,
    } | changes


def make_row(name: str = "m", kernel: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A matrix on which the best routine takes 10 us, the default 20 us, ours 5 us."""
    return {
        "name": name,
        "class": "stencil",
        "split": "generated",
        "num_rows": 1000,
        "num_cols": 1000,
        "nnz": 10_000,
        "structure": {"longest_row": 10, "empty_rows": 0, "used_cols": 1000, "x_sectors_per_nnz": 0.2},
        "csr_bytes": 84_004,
        "vector_bytes": 8000,
        "default": make_times(20, preparation_ms=0.0),
        "best_baseline": {"routine": "cusparse_coo_alg1", **make_times(10, preparation_ms=0.5)},
        "routines": {},
        "families": {"outcomes": {"passed": 3}, "best": kernel or make_kernel()},
        "policy": {"outcomes": {}, "best": None},
        "search": {
            "candidates": 30,
            "prepare_s": 0.1,
            "search_s": 1.0,
            "device_s": 0.8,
            "stages_s": {"baselines": 0.3, "compile_wait": 0.2},
        },
        "wall_s": 1.0,
    } | changes


def make_suite(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "kind": "suite",
        "operation": "spmv",
        "element_type": "float32",
        "num_dense_cols": 1,
        "candidates": 32,
        "device": {
            "kind": "cuda",
            "name": "NVIDIA H200",
            "architecture": "sm_90",
            "num_sms": 132,
            "copy_bandwidth_gbs": 4000.0,
            "versions": {"driver": "580", "cusparse": "12.6.3"},
        },
        "commit": "0123abcd",
        "date": "2026-01-01T00:00:00+00:00",
        "command": "python -m benchmarks.measure.run",
        "cpu_cores": 32,
        "missing": [],
        "rows": list(rows) or [make_row()],
    } | changes
