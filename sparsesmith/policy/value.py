"""A value model: what a program is worth for a matrix before anybody compiled it. Chance to pass, and time.

The policy's own encoder and trunk read prompt and program; a small head looks at the program's last token. A folder is
a policy's with `value.safetensors` beside it. It is a filter of samples (docs/training.md), and the trunk that a
critic may start from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from sparsesmith.errors import InvalidOption
from sparsesmith.policy.checkpoint import Policy, load_policy, save_policy
from sparsesmith.policy.description import PolicyDescription, load_description
from sparsesmith.policy.embedding import token_id
from sparsesmith.policy.encoder import MatrixEncoder, PromptBatch, collate
from sparsesmith.prompts.arrays import PromptInputs

HEAD_FILE = "value.safetensors"
HEAD_WIDTH = 256


@dataclass(frozen=True)
class Worth:
    """Of one program."""

    passes: float | None
    """Chance that it passes; None where the model was shown no failures."""
    log_time: float
    """Natural logarithm of the time in microseconds. Within a workload its order tells more than its size."""


class ValueModel(nn.Module):
    """Encoder, trunk and head."""

    def __init__(self, model: Qwen3ForCausalLM, encoder: MatrixEncoder) -> None:
        super().__init__()
        self.model = model
        self.encoder = encoder
        hidden = int(model.config.hidden_size)
        self.head = nn.Sequential(nn.Linear(hidden, HEAD_WIDTH), nn.GELU(), nn.Linear(HEAD_WIDTH, 2))

    def forward(self, prompts: PromptBatch, token_ids_BT: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Programs as `<bos>` tokens `<eos>`, padded on the right, and their lengths.

        The logit of passing and the natural logarithm of the time, float32, shape [B] each.
        """
        soft = self.encoder(prompts)
        words = self.model.get_input_embeddings()(token_ids_BT)
        inputs = torch.cat([soft.to(words.dtype), words], dim=1)
        # Padding stands on the right, so causal attention needs no mask.
        mask = {"full_attention": None}
        hidden = self.model.model(inputs_embeds=inputs, attention_mask=mask, use_cache=False).last_hidden_state
        last = hidden[torch.arange(len(hidden), device=hidden.device), soft.shape[1] + lengths_B - 1]
        found: Tensor = self.head(last.to(next(self.head.parameters()).dtype)).float()
        return found[:, 0], found[:, 1]


def padded(programs: Sequence[Sequence[int]], pad: int = 0) -> tuple[Tensor, Tensor]:
    """Token ids, shape [B, T], and lengths, shape [B]."""
    lengths = torch.tensor([len(each) for each in programs])
    token_ids = torch.full((len(programs), int(lengths.max())), pad, dtype=torch.long)
    for row, program in enumerate(programs):
        token_ids[row, : len(program)] = torch.tensor(program)
    return token_ids, lengths


class Judge:
    """A value model with its tokenizer: texts in, their worth out. Blocking."""

    def __init__(self, model: ValueModel, tokenizer: Tokenizer, knows_failures: bool) -> None:
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = model.eval().to(self._device)
        self._tokenizer = tokenizer
        self._knows_failures = knows_failures
        self.encoder = model.encoder.kind
        """How its prompts are written."""

    @torch.no_grad()
    def worth(self, prompt: PromptInputs, programs: Sequence[str]) -> list[Worth]:
        """Of programs for one workload, in their order; what is beyond the model's context is cut off."""
        if not programs:
            return []
        longest = int(self._model.model.config.max_position_embeddings) - 256
        bos, eos = (token_id(self._tokenizer, name) for name in ("<bos>", "<eos>"))
        ids = [[bos, *self._tokenizer.encode(text, add_special_tokens=False).ids[:longest], eos] for text in programs]
        token_ids, lengths = padded(ids)
        prompts = collate([prompt] * len(programs)).to(self._device)
        passes, log_times = self._model(prompts, token_ids.to(self._device), lengths.to(self._device))
        chances = torch.sigmoid(passes).tolist() if self._knows_failures else [None] * len(programs)
        return [Worth(chance, time) for chance, time in zip(chances, log_times.tolist(), strict=True)]


def save_value_model(model: ValueModel, description: PolicyDescription, folder: Path) -> None:
    """Everything but the tokenizer."""
    save_policy(Policy(model.model, model.encoder, description), folder)
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in model.head.state_dict().items()}, folder / HEAD_FILE
    )


def check_value_folder(folder: Path) -> None:
    """Raises InvalidOption where the folder holds no value model, or one for other features. Reads no weights."""
    if not (folder / HEAD_FILE).is_file():
        raise InvalidOption(
            f"{folder} holds no value model: {HEAD_FILE} is missing", field="value_dir", value=str(folder)
        )
    load_description(folder)


def load_value_model(folder: Path) -> tuple[ValueModel, PolicyDescription]:
    """In float32 on the CPU. Raises InvalidOption as `check_value_folder`."""
    check_value_folder(folder)
    policy = load_policy(folder)
    model = ValueModel(policy.model, policy.encoder)
    model.head.load_state_dict(load_file(folder / HEAD_FILE))
    return model, policy.description


def load_judge(folder: Path) -> Judge:
    """Blocking. Raises InvalidOption as `load_value_model`."""
    model, description = load_value_model(folder)
    knows_failures = bool(description.training.get("value", {}).get("failures", 0))
    return Judge(model, Tokenizer.from_file(str(folder / "tokenizer.json")), knows_failures)
