"""The recipe of a policy: all stages with one command, none of them twice."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from services.trainer.offline.commands import run_stage
from services.trainer.offline.recipe import OWN_SOURCES, ROOT
from services.trainer.time_critic import load_time_critic
from sparsesmith.families import propose
from sparsesmith.policy.checkpoint import load_policy
from tests.families import golden

STAGES = ("corpus", "programs", "tokenizer", "examples", "pack", "pretrain", "sft", "critic", "nats", "evaluate")
TOY = {
    "--tokenizer": "--vocabulary 900 --phrases 200 --sample-characters 200000",
    "--pretrain": "--hidden 32 --layers 1 --heads 1 --kv-heads 1 --head-dim 32 --intermediate 64 --max-epochs 0.02 "
    "--batch-sequences 4 --micro-batch 4 --sequence-length 256",
    "--sft": "--max-epochs 2 --prompt-samples 1 --processes 1 --checks 1",
    "--critic": "--passes 2 --processes 1",
    "--evaluate": "--samples 1 --max-program-tokens 8 --prompt-samples 1 --processes 1",
}


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    """Some programs of two matrices, one on each side."""
    lines = []
    for name, pattern in {"points": golden.PATTERNS["five points"](), "random": golden.PATTERNS["random"]()}.items():
        scipy.sparse.save_npz(tmp_path / f"{name}.npz", pattern.to_scipy(np.ones(pattern.nnz, np.float32)))
        for number, found in enumerate(propose(pattern, "spmv", "float32", limit=4)):
            record = {"pattern": name, "operation": "spmv", "element_type": "float32", "num_dense_cols": 1}
            record |= {"family": found.family, "parameters": found.parameters, "median_us": 2.0 + 0.1 * number}
            lines.append(json.dumps(record))
    (tmp_path / "records.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "split.csv").write_text("name,split\npoints,train\nrandom,validation\n", encoding="utf-8")
    given = {"--records": "records.jsonl", "--split": "split.csv", "--patterns": "."}
    return [word for option, name in given.items() for word in (option, str(tmp_path / name))]


def test_one_command_makes_an_evaluated_policy_and_runs_no_stage_twice(
    data: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the repository's own device code, where no corpus is given."""
    monkeypatch.chdir(ROOT)
    toy = [f"{option}={value}" for option, value in TOY.items()]
    recipe = ["policy", *data, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "policy"), *toy]
    assert list(run_stage([*recipe, "--until", "pack"])) == list(STAGES[:5])
    ended = {name: (tmp_path / "work" / f"{name}.report.json").stat().st_mtime_ns for name in STAGES[:5]}
    assert list(run_stage(recipe)) == list(STAGES)
    assert {name: (tmp_path / "work" / f"{name}.report.json").stat().st_mtime_ns for name in ended} == ended
    corpus = json.loads((tmp_path / "work" / "corpus.report.json").read_text())
    assert tuple(corpus["arguments"][:3]) == OWN_SOURCES, "paths that hold on another machine, too"
    reports = {name: json.loads((tmp_path / "work" / f"{name}.report.json").read_text())["report"] for name in STAGES}
    assert reports["corpus"]["train_files"] > 20
    assert reports["examples"]["train"]["programs"] == reports["examples"]["validation"]["programs"] == 4
    assert reports["sft"]["steps"] == 2
    assert {"directives", "numbers", "rest", "program"} <= set(reports["nats"]["validation"]["improve"])
    assert (reports["critic"]["train_workloads"], reports["critic"]["validation_workloads"]) == (1, 1)
    assert load_time_critic(tmp_path / "policy", 32) is not None
    assert reports["evaluate"]["samples"] == 1
    assert load_policy(tmp_path / "policy").description.training["supervised"]["train_workloads"] == 1
    tokenizers = [json.loads((tmp_path / name / "tokenizer.json").read_text()) for name in ("policy", "work")]
    assert tokenizers[0] == tokenizers[1]
    assert not list((tmp_path / "work").glob("*.pt"))
    assert list(run_stage([*recipe, "--variants", "1", "--until", "sft"])) == [*STAGES[:4], "teach", *STAGES[4:7]]
    assert {name: (tmp_path / "work" / f"{name}.report.json").stat().st_mtime_ns for name in STAGES[:4]}.items() <= (
        ended.items()
    )
    supervised = load_policy(tmp_path / "policy").description.training["supervised"]
    assert (supervised["train_workloads"], supervised["taught"]) == (10, 5), "the one that was measured as often as all"
    examples = str(tmp_path / "work" / "examples.jsonl.xz")
    given = ["--examples", examples, "--patterns", str(tmp_path)]
    on = ["sft", *given, "--policy", str(tmp_path / "policy"), "--out", str(tmp_path / "on"), *TOY["--sft"].split()]
    run_stage([*on, "--name", "learned-on", "--taught", examples, examples])
    training = load_policy(tmp_path / "on").description.training
    assert training["supervised"]["taught"] == 2, "of both files"
    assert (training["from"], training["supervised_before"]) == ("sparsesmith-28m", supervised)
    assert (tmp_path / "on" / "tokenizer.json").read_text() == (tmp_path / "policy" / "tokenizer.json").read_text()
    with pytest.raises(SystemExit, match="needs --tokenizer"):
        run_stage(["sft", *given, "--pretrained", str(tmp_path / "work" / "pretrained"), "--out", str(tmp_path / "x")])


def test_a_stage_runs_again_once_a_file_of_it_has_changed(data: list[str], tmp_path: Path) -> None:
    recipe = ["policy", *data, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--until", "programs"]
    run_stage(recipe)
    corpus, programs = (tmp_path / "work" / f"{name}.report.json" for name in ("corpus", "programs"))
    before = corpus.read_bytes()
    records = tmp_path / "records.jsonl"
    records.write_text("\n".join(records.read_text().splitlines()[1:]), encoding="utf-8")
    run_stage(recipe)
    assert corpus.read_bytes() == before
    assert json.loads(programs.read_text())["report"]["programs"] == 3
