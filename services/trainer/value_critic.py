"""A critic that begins as a value model: what it knows of measured programs, it says of ones that are being written.

Reads prompt and program with the value model's own encoder and trunk, before each token, and turns its two numbers into
a reward. Its values before any update are therefore the value model's of the program so far.
"""

import math
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from services.trainer.policy_model import TextBatch
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.encoder import PromptBatch
from sparsesmith.policy.value import ValueModel, load_value_model
from sparsesmith.prompts.arrays import EncoderKind
from sparsesmith.reward import CORRECT, MISMATCH


def expected_rewards(passes: Tensor, log_times: Tensor, log_rival: Tensor) -> Tensor:
    """Of the scheme `milestone`, without bounds: the chance to pass, and doublings of speed over a rival's time.

    `passes`: logits; `log_times`, `log_rival`: natural logarithms of microseconds.
    """
    chance = torch.sigmoid(passes)
    return chance * (CORRECT + (log_rival - log_times) / math.log(2)) + (1 - chance) * MISMATCH


class ValueCritic(nn.Module):
    """Trunk and head of a value model. Its encoder and embeddings stay as they are: few live records would spoil them.

    What the rival of a workload takes, the value model was never told: a layer learns it from live rewards, and says 0
    (a microsecond) before.
    """

    def __init__(self, model: ValueModel, knows_failures: bool) -> None:
        """`knows_failures`: whether the value model was shown any; without, nothing is said of the chance to pass."""
        super().__init__()
        self.model = model
        self._knows_failures = knows_failures
        self.rival = nn.Linear(int(model.model.config.hidden_size), 1)
        nn.init.zeros_(self.rival.weight)
        nn.init.zeros_(self.rival.bias)
        model.encoder.requires_grad_(False)
        model.model.get_input_embeddings().requires_grad_(False)

    def forward(self, prompts: PromptBatch, text: TextBatch) -> Tensor:
        """Before each text token, float32, shape [B, T]. Padding stands on the right."""
        model = self.model
        soft = model.encoder(prompts)
        words = model.model.get_input_embeddings()(text.token_ids_BT)
        inputs = torch.cat([soft.to(words.dtype), words], dim=1)
        mask = {"full_attention": None}
        hidden = model.model.model(inputs_embeds=inputs, attention_mask=mask, use_cache=False).last_hidden_state
        before = hidden[:, soft.shape[1] - 1 : -1].to(self.rival.weight.dtype)
        said = model.head(before).float()
        passes = said[..., 0] if self._knows_failures else torch.full_like(said[..., 0], math.inf)
        return expected_rewards(passes, said[..., 1], self.rival(before).squeeze(-1).float())


def load_critic(folder: Path, encoder: EncoderKind, tokenizer: Tokenizer) -> ValueCritic:
    """Of a value model's folder. Raises InvalidOption where there is none, or it reads other prompts or words than
    the policy."""
    model, description = load_value_model(folder)
    if description.encoder != encoder:
        raise InvalidOption(
            f"value_dir {folder}: its encoder is {description.encoder}, the policy's is {encoder}",
            field="value_dir",
            value=description.encoder,
            limit=encoder,
        )
    if Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab() != tokenizer.get_vocab():
        raise InvalidOption(
            f"value_dir {folder}: its tokenizer is not the policy's", field="value_dir", value=str(folder)
        )
    return ValueCritic(model, bool(description.training.get("value", {}).get("failures", 0)))
