"""What is told of a policy: kinship of texts, best of k, gains at equal seconds, what it is shown of a matrix."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

from benchmarks.learning.conditioning import ShownInstead, blind, shuffled
from benchmarks.learning.engine_rate import rate_of
from benchmarks.matrices.suites import permuted
from benchmarks.measure.invention import invented, kinships_among, masked
from benchmarks.origin import ROOT
from benchmarks.report.policy import (
    ARM_WORDS,
    EQUAL_SECONDS,
    arm_gains,
    best_of,
    equal_seconds_lines,
    rate_lines,
    sample_lines,
)
from benchmarks.tuning.arms import ARMS
from services.generator.policy.engine import EmbeddingPrompt, InvalidPrompt, Sample
from services.generator.policy.matrix_prompts import MatrixPrompts
from sparsesmith.families import FamilyInstance
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.policy.encoder import MatrixEncoder, collate
from sparsesmith.prompts.arrays import matrix_inputs, pattern_features, prompt_inputs
from sparsesmith.prompts.header import HEADER_SIZES, header
from sparsesmith.tuning.grid import grid_of
from sparsesmith_proto.kernel import Parent
from tests.benchmarks.suites import make_row, make_suite
from tests.generator.orders import make_pattern, make_prompt, make_workload

PARENT = Parent(program="//@ format csr", report="passed")


def make_sample(us: float | None, **changes: Any) -> dict[str, Any]:
    passed = {"outcome": "passed", "us": us, "final": True, "code": "c", "other_code": False}
    common = {"text": "t", "masked": "m", "kind": "family"}
    return common | (passed if us is not None else {"outcome": "mismatch"}) | changes


def make_arms(nnz: int, **us: float | None) -> dict[str, Any]:
    arms: dict[str, dict[str, Any]] = {
        arm: {"us": time, "seconds": 3.0, "candidates": 9, "passed": 8, "by": "families", "sources": {}}
        for arm, time in us.items()
    }
    return {"name": f"m{nnz}", "nnz": nnz, "workload": "spmv float32", "best_routine_us": 20.0, "arms": arms}


def test_numbers_are_masked_and_names_are_not() -> None:
    assert masked("float4 a[0x1F]; x1 = 2.5f + 3e-4; // 17u") == "float4 a[#]; x1 = # + #; // #"


def test_a_text_is_a_familys_outside_its_grid_or_no_familys() -> None:
    pattern = make_pattern()
    grid = grid_of(pattern, "spmv", "float32")
    instances: list[FamilyInstance] = [grid.instance(index) for index in range(4)]
    own = instances[0].written
    other_number = own.replace("{", "{ const int extra = 12345;", 1)
    known = FamilyInstance("f", {}, own.replace("{", "{ const int extra = 7;", 1), "float32")
    kin = kinships_among([*instances, known], [own, f"\n{own}\n", other_number, "//@ format csr\nvoid k();"])
    assert [each.kind for each in kin.values()] == ["family", "family", "outside_grid", "no_family"]
    assert kin[other_number].nearest == instances[0].program
    assert kin[own].nearest == ""


def test_invented_is_what_passed_and_shares_neither_text_nor_code() -> None:
    new = {"kind": "no_family", "other_code": True}
    assert invented(make_sample(1.0, **new))
    assert not invented(make_sample(1.0, other_code=True))
    assert not invented(make_sample(1.0, kind="outside_grid"))
    assert not invented(make_sample(None, **new))


def test_best_of_k_is_of_groups_and_a_group_without_any_counts_as_the_routine() -> None:
    samples = [make_sample(2.0), make_sample(8.0), make_sample(None), make_sample(None)]
    assert best_of(samples, 2, against_us=8.0, routine_us=8.0) == pytest.approx(2.0)
    assert best_of(samples, 4, against_us=8.0, routine_us=8.0) == pytest.approx(4.0)
    assert best_of(samples, 5, against_us=8.0, routine_us=8.0) is None


def test_gains_are_over_families_by_class_and_leave_out_what_failed() -> None:
    rows = [
        make_arms(1000, families=2.0, auto=1.0, on=2.0),
        make_arms(2_000_000, families=4.0, auto=4.0, on=None),
        {"name": "m", "nnz": 5, "workload": "spmv float32", "failed": "too large"},
    ]
    auto = arm_gains(rows)["spmv float32"]["auto"]
    assert auto["all"]["gain"] == pytest.approx(2**0.5, abs=1e-4)
    assert (auto["< 1e5"]["gain"], auto[">= 1e6"]["gain"]) == (2.0, 1.0)
    assert arm_gains(rows)["spmv float32"]["on"]["all"]["matrices"] == 1
    result = {"seconds_each": 3.0, "policy": "p", "cost_model": "c", "kinds": arm_gains(rows), "rows": rows}
    (line,) = [line for line in equal_seconds_lines(result) if "| auto |" in line]
    assert "2.000x (2.000 to 2.000), 1 | - | 1.000x" in line


def test_a_workload_of_several_seeds_counts_once() -> None:
    rows = [{**make_arms(1000, families=2.0, auto=us), "seed": seed} for seed, us in enumerate((1.0, 2.0, 4.0))]
    rows.append({**make_arms(2000, families=2.0, auto=1.0), "name": "other"})
    auto = arm_gains(rows)["spmv float32"]["auto"]["all"]
    assert (auto["gain"], auto["matrices"]) == (pytest.approx(2**0.5, abs=1e-4), 2)
    told = {"seconds_each": 3.0, "policy": "p", "cost_model": "c", "kinds": arm_gains(rows), "rows": rows}
    assert equal_seconds_lines(told)[0].startswith("3 s a workload and arm, 3 seeds;")


def test_the_report_says_what_each_arm_is_and_which_policy_had_learned() -> None:
    gone = ["checked", "sample-checked"]  # Arms of result files that are kept.
    assert [arm for arm in ARMS if arm != "families"] == [arm for arm in ARM_WORDS if arm not in gone]
    assert set(gone) <= set(ARM_WORDS)
    assert "blind: the policy alone, shown no matrix." in EQUAL_SECONDS
    rows = [make_arms(1000, families=2.0, blind=4.0, learned=1.0)]
    told = {"seconds_each": 3.0, "policy": "p", "cost_model": "c", "kinds": arm_gains(rows), "rows": rows}
    first, *_, blind_line, learned_line = equal_seconds_lines({**told, "learned": "new"})
    assert first == "3 s a workload and arm; policy p, learned new, cost model c."
    assert "| blind | 0.500x" in blind_line and "| learned | 2.000x" in learned_line
    assert equal_seconds_lines({**told, "learned": None})[0] == "3 s a workload and arm; policy p, cost model c."


def test_single_samples_are_told_and_files_without_them_say_so() -> None:
    outcomes = {"passed": 3, "mismatch": 1}
    samples = [make_sample(5.0, text=str(n), kind="no_family", other_code=n > 0) for n in range(3)] + [
        make_sample(None)
    ]
    early = make_row(split="validation", policy={"outcomes": outcomes, "best": None})
    now = make_row(split="generated", policy={"outcomes": outcomes, "best": None, "samples": samples})
    files = [make_suite(early, kind="samples"), make_suite(now, kind="samples_permuted", permuted=7)]
    lines = sample_lines(files)
    assert "| 75.0% (75.0% to 75.0%) | 75% | - | - | - | - | - |" in lines[-2]
    assert "rows and columns permuted (seed 7)" in lines[-1]
    assert "| 3.0 of 4 | 50.0% (50.0% to 50.0%) |" in lines[-1]
    assert sample_lines([make_suite(make_row(split="train"), kind="samples")]) == []


def test_rates_are_tokens_over_seconds() -> None:
    samples = [Sample("", (1,) * count, (0.0,) * count, (0,) * count) for count in (10, 30)]
    row = rate_of(samples, 2.0, own_s=0.001)
    assert (row["tokens"], row["tokens_a_second"], row["samples_a_second"]) == (40, 20.0, 1.0)
    known = {"mode": "alone", "at_once": 64, "gpu_memory": 0.85}
    assert rate_lines({"rows": [{**known, **row}]})[-1].endswith("| 2.0 | 1.0 | 20 | 25.0 |")
    before = {name: value for name, value in row.items() if name != "own_us_a_token"}
    assert rate_lines({"rows": [{**known, **before}]})[-1].endswith("| 20 | - |")


def test_a_permuted_matrix_is_the_same_graph_in_another_order() -> None:
    square = pattern_from_scipy(scipy.sparse.random(40, 40, 0.1, format="csr", random_state=1))
    other = permuted(square, 7)
    order = np.random.default_rng(7).permutation(square.num_rows)
    dense = square.to_scipy(np.ones(square.nnz)).toarray()
    assert other.digest != square.digest and other.digest == permuted(square, 7).digest
    assert (other.to_scipy(np.ones(other.nnz)).toarray() == dense[order][:, order]).all()
    wide = pattern_from_scipy(scipy.sparse.csr_matrix(np.eye(3, 5)))
    assert (permuted(wide, 1).num_rows, permuted(wide, 1).num_cols, permuted(wide, 1).nnz) == (3, 5, 3)


def test_shuffled_leaves_nothing_in_its_place() -> None:
    names = list("abcdef")
    assert sorted(shuffled(names)) == names
    assert all(own != other for own, other in zip(names, shuffled(names), strict=True))
    with pytest.raises(ValueError, match="at least 2"):
        shuffled(["a"])


def test_a_blind_encoder_says_only_what_is_asked_for() -> None:
    torch.manual_seed(0)
    encoder = MatrixEncoder("structural", hidden=16)
    ids = header("spmv", "float32", 1, "sm_90")
    patterns = [make_pattern(), permuted(make_pattern(), 3)]
    shown = [matrix_inputs(each, "structural", 0, ids, pattern_features(each, "structural")) for each in patterns]
    batch = collate(shown)
    seen = encoder(batch)
    blind(encoder)
    unseen = encoder(batch)
    assert not torch.equal(seen[0], seen[1]) and torch.equal(unseen[0], unseen[1])
    assert torch.equal(unseen[:, : len(HEADER_SIZES)], seen[:, : len(HEADER_SIZES)])


def test_a_prompt_shows_another_matrix_or_none_in_the_right_ones_place() -> None:
    policy = ROOT / "models" / "sparsesmith-28m"
    writer = MatrixPrompts(policy)
    own, other = make_pattern(), make_pattern(seed=3)
    workload, prompt = make_workload(own), make_prompt(encoder=writer.encoder)

    def written(shown: Any) -> torch.Tensor:
        found = shown.write(own, workload, prompt)
        assert isinstance(found, EmbeddingPrompt) and found.version == 0
        return found.embeddings

    embedder = load_embedder(policy)
    of_other = embedder.embed([prompt_inputs(other, make_workload(other), prompt)])[0]
    blind(embedder.encoder)
    of_none = embedder.embed([prompt_inputs(own, workload, prompt)])[0]
    assert torch.equal(written(ShownInstead(writer, other)), of_other)
    assert torch.equal(written(ShownInstead(writer, None)), of_none)
    assert not torch.equal(written(writer), of_none) and not torch.equal(written(writer), of_other)
    with pytest.raises(InvalidPrompt, match="only of a prompt that is a matrix"):
        ShownInstead(writer, None).write(own, workload, make_prompt(encoder=writer.encoder, parent=PARENT))


def test_samples_of_another_temperature_are_a_kind_of_their_own(tmp_path: Path) -> None:
    from benchmarks.measure.run import _read_samples

    line = {"pattern": "m", "operation": "spmv", "element_type": "float32", "num_dense_cols": 1, "programs": ["p"]}
    path = tmp_path / "samples.jsonl"
    for unusual, kind in (({}, "samples"), ({"temperature": 1.3}, "samples_temperature")):
        path.write_text(json.dumps({"policy": "p", **unusual, **line}), encoding="utf-8")
        assert _read_samples(path).kind == kind
    row = make_row(split="validation", policy={"outcomes": {"passed": 1}, "best": None})
    (told,) = sample_lines([make_suite(row, kind="samples_temperature", temperature=1.3, min_p=0.1)])[-1:]
    assert "at another temperature (1.3, min-p 0.1)" in told


def test_sources_of_samples_are_those_of_a_side(tmp_path: Path) -> None:
    from benchmarks.learning.sample_policy import chosen_sources, how_written
    from sparsesmith.matrix.pack import encode_pattern, write_pack

    write_pack(tmp_path / "core.pack", {"tub1000": encode_pattern(make_pattern())})
    options = {"pack": tmp_path / "core.pack", "only": "unseen", "generated_nnz": 5e6, "names": None, "most": 2}
    asked = SimpleNamespace(**options, permuted=7, conditioning=None, temperature=1.3, min_p=0.1)
    first, second = chosen_sources(asked)  # type: ignore[arg-type]
    assert (first.name, second.name) == ("tub1000", "stencil2d5_1000")
    assert first.load().pattern.digest == permuted(make_pattern(), 7).digest
    assert how_written("p", asked) == {"policy": "p", "permuted": 7, "temperature": 1.3, "min_p": 0.1}  # type: ignore[arg-type]
    asked.only = "train"
    assert how_written("p", asked)["split"] == "train"  # type: ignore[arg-type]
