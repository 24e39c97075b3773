"""The shipped policy's networks: a small Qwen3 language model and the value head that the trainer adds."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from services.trainer.tokenizer import BOS, EOS, PAD, SPECIAL_TOKENS


@dataclass(frozen=True)
class PolicySize:
    """Widths of the language model. The defaults give 26 M parameters."""

    hidden: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 64
    intermediate: int = 1280
    max_positions: int = 4096


def policy_config(size: PolicySize, vocabulary: int) -> Qwen3Config:
    """The language model's configuration; the vocabulary is rounded up to a multiple of 64."""
    return Qwen3Config(
        vocab_size=-(-vocabulary // 64) * 64,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        intermediate_size=size.intermediate,
        max_position_embeddings=size.max_positions,
        tie_word_embeddings=True,
        pad_token_id=SPECIAL_TOKENS.index(PAD),
        bos_token_id=SPECIAL_TOKENS.index(BOS),
        eos_token_id=SPECIAL_TOKENS.index(EOS),
        architectures=["Qwen3ForCausalLM"],
        dtype="bfloat16",
    )


def new_language_model(size: PolicySize, vocabulary: int, seed: int) -> Qwen3ForCausalLM:
    """Freshly initialised, in float32."""
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(policy_config(size, vocabulary)).float()


def num_parameters(module: nn.Module) -> int:
    """Tied weights count once."""
    return sum(parameter.numel() for parameter in module.parameters())


class ValueHead(nn.Module):
    """Expected reward from the final hidden state of each token: the critic's part that is not the policy.

    The last layer starts at zero, so that an untrained critic says 0 and PPO starts from the group baseline.
    """

    def __init__(self, hidden: int, width: int = 256) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.Linear(width, 1))
        last = self.inner[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, hidden_states_BTH: Tensor) -> Tensor:
        """Final hidden states, shape [batch, tokens, hidden] -> values, float32, shape [batch, tokens]."""
        values: Tensor = self.inner(hidden_states_BTH.to(self.inner[0].weight.dtype)).squeeze(-1)
        return values.float()
