"""Two runs of one suite held side by side: only what both have, over the routine of the same run."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report.evidence import sections
from benchmarks.tuning.cost_elsewhere import compared, figures, main

DEVICE = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"}


def run(rows: list[dict[str, Any]], device: dict[str, str] = DEVICE) -> dict[str, Any]:
    return {"device": device, "commit": "c0ffee00", "cost_model": "cost-h200", "rows": rows}


def row(name: str, us: float | None, routine_us: float) -> dict[str, Any]:
    best = None if us is None else {"us": us}
    return {"name": name, "nnz": 10, "best_baseline": {"us": routine_us}, "families": {"best": best}}


ESTIMATES = run([row("a", 2.0, 2.0), row("b", 1.0, 2.0), row("only here", 1.0, 2.0), row("nothing passed", None, 2.0)])
LEARNED = run([row("a", 1.0, 4.0), row("b", 2.0, 1.9), row("nothing passed", 1.0, 2.0)])


def test_what_both_runs_have_is_held_over_the_routine_of_its_own_run() -> None:
    rows = compared(ESTIMATES, LEARNED)
    assert [(each["name"], each["estimates"], each["learned"]) for each in rows] == [("a", 1.0, 4.0), ("b", 2.0, 0.95)]
    told = figures(rows)
    assert told["over_routine"] == {"estimates": round(2**0.5, 4), "learned": round(3.8**0.5, 4)}
    assert told["lost"] == {"estimates": 0, "learned": 1}
    assert told["gain"]["mean"] == pytest.approx((4 * 0.475) ** 0.5, abs=1e-3)


def test_files_of_equal_name_become_a_result_that_the_report_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, result in (("estimates", ESTIMATES), ("learned", LEARNED)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "suite-spmv-float32.json").write_text(json.dumps(result))
    (tmp_path / "learned" / "suite-spmv-float64.json").write_text(json.dumps(LEARNED))
    monkeypatch.setattr(sys, "argv", ["x", f"{tmp_path}/estimates", f"{tmp_path}/learned", "--out", f"{tmp_path}/out"])
    main()
    result = json.loads((tmp_path / "out" / "nvidia-h100-80gb-hbm3" / "cost-elsewhere.json").read_text())
    assert list(result["kinds"]) == ["suite-spmv-float32"]
    shown = "\n".join(sections([result]))
    assert "| suite-spmv-float32 | 2 | 1.41x | 1.95x | 1.378" in shown


def test_runs_of_two_devices_are_not_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = run(LEARNED["rows"], {"kind": "cuda", "name": "NVIDIA H200"})
    for folder, result in (("estimates", ESTIMATES), ("learned", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "suite-spmv-float32.json").write_text(json.dumps(result))
    monkeypatch.setattr(sys, "argv", ["x", f"{tmp_path}/estimates", f"{tmp_path}/learned", "--out", f"{tmp_path}/out"])
    with pytest.raises(SystemExit, match="NVIDIA H100 80GB HBM3 and of NVIDIA H200"):
        main()
