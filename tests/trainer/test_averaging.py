"""Two policies' weights in between."""

from pathlib import Path

import pytest
import torch

from services.trainer.offline.averaging import in_between
from services.trainer.offline.commands import run_stage
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy, load_policy, save_tokenizer
from tests.generator.tiny_policy import VOCABULARY_SIZE, make_policy, make_tokenizer, write_policy


def weights_of(policy: Policy) -> dict[str, torch.Tensor]:
    return {
        **policy.model.state_dict(),
        **{f"encoder.{name}": each for name, each in policy.encoder.state_dict().items()},
    }


def test_every_weight_is_so_much_of_the_way() -> None:
    before, after = weights_of(make_policy(0)), weights_of(make_policy(1))
    found = in_between(make_policy(0), make_policy(1), 0.25)
    for name, weight in weights_of(found).items():
        torch.testing.assert_close(weight, before[name] + 0.25 * (after[name] - before[name]))
    assert found.description.training["averaged"] == {"share": 0.25, "before": "tiny-0"}
    assert found.model.lm_head.weight.data_ptr() == found.model.model.embed_tokens.weight.data_ptr()


def test_policies_of_other_shapes_are_refused_by_the_weight_that_differs() -> None:
    other = make_policy(1)
    other.model.resize_token_embeddings(VOCABULARY_SIZE + 64)
    with pytest.raises(InvalidOption, match="embed_tokens"):
        in_between(make_policy(0), other, 0.5)


def test_the_stage_writes_a_policy_that_loads_and_refuses_shares_and_tokenizers(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_policy(tmp_path / str(seed), make_policy(seed))
    other = make_tokenizer()
    other.add_tokens(["another"])
    save_tokenizer(other.to_str(), tmp_path / "2")

    def averaged(after: str, share: str) -> dict[str, object]:
        words = ["--policy", str(tmp_path / after), "--before", str(tmp_path / "0"), "--share", share]
        return run_stage(["average", *words, "--out", str(tmp_path / "out")])

    assert averaged("1", "0.5") == {"share": 0.5, "name": "tiny-1"}
    assert load_policy(tmp_path / "out").description.training["averaged"]["before"] == "tiny-0"
    with pytest.raises(SystemExit, match=r"--share is 1\.0"):
        averaged("1", "1.0")
    with pytest.raises(SystemExit, match="different tokenizers"):
        averaged("2", "0.5")
