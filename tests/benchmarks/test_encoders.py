"""Encoders are compared by real trainings, of toy size; what was made before an interruption is not made again."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from benchmarks.learning.encoders import Results, main, options_of, soft_tokens
from benchmarks.report.evidence import sections
from services.trainer.offline.commands import run_stage
from services.trainer.policy_model import new_language_model
from services.trainer.tokenizer import TokenizerSize, train_tokenizer
from sparsesmith.families import propose
from sparsesmith.policy.checkpoint import load_policy, save_language_model
from sparsesmith.prompts.arrays import ENCODER_KINDS
from tests.families import golden
from tests.slow import of_minutes
from tests.trainer.conftest import TINY

ENCODERS = ("features", "sinusoidal")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Words of the benchmark, on a tiny language model that nothing taught and some programs of two matrices, one on
    each side."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lines, texts = [], []
    for name, pattern in {"points": golden.PATTERNS["five points"](), "random": golden.PATTERNS["random"]()}.items():
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", pattern.to_scipy(np.ones(pattern.nnz, np.float32)))
        for number, found in enumerate(propose(pattern, "spmv", "float32", limit=4)):
            record = {"pattern": name, "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
            record |= {"family": found.family, "parameters": found.parameters, "median_us": 2.0 + 0.1 * number}
            lines.append(json.dumps(record))
            texts.append(found.program)
    (tmp_path / "records.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "split.csv").write_text("name,split\npoints,train\nrandom,validation\n", encoding="utf-8")
    given = {"--records": "records.jsonl", "--split": "split.csv", "--patterns": ".", "--out": "examples.jsonl.xz"}
    run_stage(["examples", *(word for option, name in given.items() for word in (option, str(tmp_path / name)))])
    tokenizer = train_tokenizer(texts, texts, TokenizerSize(vocabulary=640, phrases=120))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    save_language_model(new_language_model(TINY, tokenizer.get_vocab_size(), seed=0), tmp_path / "pretrained")
    data = ["--examples", str(tmp_path / "examples.jsonl.xz"), "--patterns", str(tmp_path)]
    toy = ["--seconds", "1", "--samples", "1", "--batch-sequences", "2", "--device", "cpu", "--commit", "c0ffee00"]
    where = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    return [str(tmp_path / "pretrained"), "--tokenizer", str(tmp_path / "tokenizer.json"), *data, *toy, *where]


def read(tmp_path: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((tmp_path / "out" / "cpu" / "encoders.json").read_text(encoding="utf-8"))
    return result


@of_minutes
def test_a_comparison_that_was_stopped_goes_on_with_the_encoders_that_it_lacks(
    command: list[str], tmp_path: Path
) -> None:
    main([*command, "--encoders", ENCODERS[0]])
    (first,) = read(tmp_path)["rows"]
    main([*command, "--encoders", *ENCODERS])
    result = read(tmp_path)
    assert (result["kind"], result["device"]["kind"], result["commit"]) == ("encoders", "cpu", "c0ffee00")
    assert result["rows"][0] == first, "its seconds would differ if it had been made again"
    assert [(row["encoder"], row["seed"], row["soft_tokens"]) for row in result["rows"]] == [
        ("features", 0, 72),
        ("sinusoidal", 0, 132),
    ]
    for row in result["rows"]:
        assert row["steps"] >= 1 and row["seconds"] >= 1 and row["validation_loss"] > 0
        assert row["nats_a_program"]["write"] > 0
        assert (row["workloads"], row["samples"], row["train_workloads"]) == (1, 1, 1)
        assert 0 < row["mean_tokens"] <= 1024
        shares = ("legal_share", "finished_share", "known_share", "known_workloads")
        assert all(0 <= row[share] <= 1 for share in shares)
        assert row["best_over_oracle"] is None or 0 < row["best_over_oracle"] <= 1
        assert load_policy(tmp_path / "work" / f"{row['encoder']}-0").encoder.kind == row["encoder"]


@of_minutes
def test_a_training_that_fails_is_a_row_and_is_made_again(command: list[str], tmp_path: Path) -> None:
    words = [*command, "--encoders", "blind", "--seeds", "3"]
    pattern = tmp_path / "random.npz"
    away = pattern.rename(tmp_path / "away")
    with pytest.raises(SystemExit, match="failed: blind 3; see "):
        main(words)
    (row,) = read(tmp_path)["rows"]
    assert (row["encoder"], row["seed"]) == ("blind", 3)
    assert row["failed"].startswith("sft ended with 1: ") and "random" in row["failed"]
    away.rename(pattern)
    main(words)
    (row,) = read(tmp_path)["rows"]
    assert (row["encoder"], row["seed"], row["samples"]) == ("blind", 3, 1)


def test_rows_of_another_commit_are_replaced_and_it_is_said(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for commit, known, said in (
        ("c0ffee00", 0, ""),
        ("c0ffee00", 1, ""),
        ("decade00", 0, "is of another run (commit): it is replaced"),
    ):
        results = Results(options_of([*command, "--commit", commit]))
        assert len(results.rows) == known
        results.add(make_row("profiled", len(results.rows)))
        assert said in capsys.readouterr().err
        assert (read(tmp_path)["commit"], len(read(tmp_path)["rows"])) == (commit, known + 1)


def test_runs_beside_each_other_keep_the_rows_of_both(command: list[str], tmp_path: Path) -> None:
    first, second = (Results(options_of(command)) for _ in range(2))
    for results, encoder, seed in ((first, "profiled", 0), (second, "blind", 0), (first, "profiled", 1)):
        results.add(make_row(encoder, seed))
    found = [(row["encoder"], row["seed"]) for row in read(tmp_path)["rows"]]
    assert sorted(found) == [("blind", 0), ("profiled", 0), ("profiled", 1)]
    assert len(Results(options_of(command)).rows) == 3


def test_a_language_model_without_weights_is_refused_at_once(command: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="holds no weights"):
        main([str(tmp_path), *command[1:]])
    assert not (tmp_path / "out").exists()


def test_every_encoder_has_a_number_of_soft_tokens() -> None:
    assert {soft_tokens(kind) for kind in ENCODER_KINDS} == {4 + 4 + 64, 4 + 128, 4 + 1024}


def make_row(encoder: str, seed: int, **changes: Any) -> dict[str, Any]:
    row = {
        "encoder": encoder,
        "seed": seed,
        "soft_tokens": 72,
        "steps": 1500 + seed,
        "validation_loss": 0.03,
        "nats_a_program": {"write": 2.5, "improve": 0.5},
        "workloads": 188,
        "legal_share": 1.0,
        "finished_share": 1.0,
        "known_share": 0.5,
        "known_workloads": 0.75,
        "best_over_oracle": 0.95,
        "mean_tokens": 184.4,
    }
    return {**row, **changes}


def make_result(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    device = {"kind": "cuda", "name": "NVIDIA H100 80GB HBM3"}
    result = {"kind": "encoders", "device": device, "commit": "c0ffee00", "settings": {"seconds": 45.0, "samples": 4}}
    return {**result, "rows": list(rows), **changes}


def test_the_report_has_a_line_of_each_encoder_over_its_seeds_and_names_what_failed() -> None:
    unknown = {"known_share": 0.0, "known_workloads": 0.0, "best_over_oracle": None, "soft_tokens": 1028}
    rows = [
        make_row("profiled", 0),
        make_row("sinusoidal_1024", 0, **unknown),
        make_row("profiled", 1, known_share=0.6, best_over_oracle=0.97),
        {"encoder": "min_max", "seed": 0, "failed": "sft ended with 1: no\nmemory"},
    ]
    lines = sections([make_result(*rows)])
    assert lines[0] == "## What a policy is shown of a matrix"
    assert "commit c0ffee00, NVIDIA H100 80GB HBM3." in lines
    assert "45 s each, 4 samples a workload." in lines
    table = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    same = "0.0300 | write 2.50, improve 0.50 | 188 | 100.0% | 100.0%"
    assert table[2:] == [
        f"| profiled | 2 | 72 | 1,500 (1,500 to 1,501) | {same} | 55.0% (50.0% to 60.0%) | 75.0% "
        "| 0.960 (0.950 to 0.970) | 184 |",
        f"| sinusoidal_1024 | 1 | 1,028 | 1,500 | {same} | 0.0% | 0.0% | - | 184 |",
    ]
    assert "- min_max, seed 0, failed: sft ended with 1: no memory" in lines


@pytest.mark.parametrize(
    "result",
    [
        {"kind": "encoders", "device": "NVIDIA H200", "commit": "c", "structural": {"steps": 565}},
        make_result(make_row("profiled", 0), device={"kind": "cpu", "name": "CPU"}),
    ],
)
def test_a_file_from_before_it_had_rows_or_of_a_cpu_is_no_section(result: dict[str, Any]) -> None:
    assert sections([result]) == []
