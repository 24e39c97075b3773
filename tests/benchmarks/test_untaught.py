"""A policy that nothing taught is a policy, with the language model's weights."""

from pathlib import Path

import torch

from benchmarks.learning.untaught import main
from sparsesmith.policy.checkpoint import load_language_model, load_policy
from sparsesmith.policy.description import load_description

MODEL = Path(__file__).parents[2] / "models" / "sparsesmith-28m"


def test_an_untaught_policy_has_the_language_models_weights_and_an_encoder_of_its_own(tmp_path: Path) -> None:
    main([str(MODEL), str(MODEL / "tokenizer.json"), str(tmp_path / "policy")])
    policy = load_policy(tmp_path / "policy")
    assert (policy.description.name, policy.encoder.kind) == ("pretrained", "profiled")
    mine, before = policy.model.state_dict(), load_language_model(MODEL).state_dict()
    assert all(torch.allclose(mine[name].float(), before[name].float(), atol=1e-2) for name in before)
    shipped = load_policy(MODEL).encoder.state_dict()
    assert not torch.equal(policy.encoder.state_dict()["tokens.weight"], shipped["tokens.weight"])
    assert load_description(tmp_path / "policy").training == {}
