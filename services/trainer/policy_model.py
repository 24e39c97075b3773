"""A policy as the trainer sees it, and ours: language model, matrix encoder, and the value head that training adds.

Shapes: B sequences, T text tokens, H hidden width. Text is what follows the soft tokens: the parent where there is one,
`<bos>`, the program, `<eos>`, padding.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from services.trainer.optimizers import Optimizer
from services.trainer.tokenizer import BOS, EOS, PAD, SPECIAL_TOKENS
from sparsesmith.policy.checkpoint import Policy, write_published_weights
from sparsesmith.policy.description import ENCODER_PREFIX, PolicyDescription
from sparsesmith.policy.encoder import MatrixEncoder, PromptBatch
from sparsesmith.prompts.arrays import FEATURE_VERSIONS
from sparsesmith_proto.message import Digest, PolicyVersion

PAD_ID = SPECIAL_TOKENS.index(PAD)


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
    model: Qwen3ForCausalLM = Qwen3ForCausalLM(policy_config(size, vocabulary))  # type: ignore[no-untyped-call]
    nn.Module.float(model)
    return model


def num_parameters(module: nn.Module) -> int:
    """Tied weights count once."""
    return sum(parameter.numel() for parameter in module.parameters())


CRITIC_TOKEN = 10
"""Of the sampled tokens, counted from 1, the one at which a critic is judged (the last one of shorter programs): the
first decisions have fallen, most are still to come."""


class StateCritic(nn.Module):
    """A critic that reads the policy's final hidden states, whose loss ends there where they are detached."""

    def forward(self, hidden_states_BTH: Tensor, library_us_B: Tensor | None = None) -> Tensor:
        """Values before each token, at least float32, shape [B, T]. `library_us_B`: what the best routine takes."""
        raise NotImplementedError


class ValueHead(StateCritic):
    """Expected reward from the final hidden state of each token: the critic's part that is not the policy.

    The last layer starts at zero, so that an untrained critic says 0 and PPO starts from the group baseline.
    """

    def __init__(self, hidden: int, width: int = 256) -> None:
        super().__init__()
        first, last = nn.Linear(hidden, width), nn.Linear(width, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.inner = nn.Sequential(first, nn.GELU(), last)

    def forward(self, hidden_states_BTH: Tensor, library_us_B: Tensor | None = None) -> Tensor:
        """Final hidden states, shape [batch, tokens, hidden] -> values, at least float32, shape [batch, tokens]."""
        values: Tensor = self.inner(hidden_states_BTH.to(next(self.parameters()).dtype)).squeeze(-1)
        return _wide(values)


@dataclass(frozen=True)
class TextBatch:
    """Text tokens of a batch, padded on the right."""

    token_ids_BT: Tensor
    sampled_mask_BT: Tensor
    """True where the policy wrote the token: the program and its `<eos>`."""

    def to(self, device: str | torch.device) -> "TextBatch":
        return TextBatch(
            self.token_ids_BT.to(device, non_blocking=True), self.sampled_mask_BT.to(device, non_blocking=True)
        )


def text_batch(prompts: Sequence[Sequence[int]], programs: Sequence[Sequence[int]]) -> TextBatch:
    """Prompt text ids (the last one is `<bos>`) and program ids (the last one usually `<eos>`) of each sequence."""
    length = max(len(prompt) + len(program) for prompt, program in zip(prompts, programs, strict=True))
    token_ids = torch.full((len(prompts), length), PAD_ID, dtype=torch.long)
    mask = torch.zeros((len(prompts), length), dtype=torch.bool)
    for row, (prompt, program) in enumerate(zip(prompts, programs, strict=True)):
        token_ids[row, : len(prompt) + len(program)] = torch.tensor([*prompt, *program])
        mask[row, len(prompt) : len(prompt) + len(program)] = True
    return TextBatch(token_ids, mask)


def word_logprobs(logits_NV: Tensor, temperature: float | Tensor) -> Tensor:
    """At a sampling temperature, one for all or of shape [N, 1]: at least float32."""
    return torch.log_softmax(_wide(logits_NV) / temperature, dim=-1)


def chosen_logprobs(words_NV: Tensor, text: TextBatch) -> Tensor:
    """Of the sampled tokens themselves, shape [N]."""
    return words_NV.gather(-1, text.token_ids_BT[text.sampled_mask_BT][:, None]).squeeze(-1)


def entropies(words_NV: Tensor) -> Tensor:
    """Of each sampled token's distribution, in nats: shape [N]."""
    return -(words_NV.exp() * words_NV).sum(dim=-1)


def divergences(first_NV: Tensor, second_NV: Tensor) -> Tensor:
    """KL(first || second) of each sampled token's distributions, over all words, in nats: shape [N]."""
    return (first_NV.exp() * (first_NV - second_NV)).sum(dim=-1)


def placed(value_N: Tensor, text: TextBatch) -> Tensor:
    """Values of sampled tokens where those stand, shape [B, T]; 0 elsewhere."""
    mask_BT = text.sampled_mask_BT
    return torch.zeros(mask_BT.shape, dtype=value_N.dtype, device=mask_BT.device).masked_scatter(mask_BT, value_N)


def _of_tokens(temperature: float | Tensor, text: TextBatch) -> float | Tensor:
    """One for all, or one a sequence as one a sampled token, shape [N, 1]."""
    if not isinstance(temperature, Tensor):
        return temperature
    mask_BT = text.sampled_mask_BT
    return temperature[:, None].expand(mask_BT.shape)[mask_BT][:, None]


def _wide(value: Tensor) -> Tensor:
    return value.to(torch.promote_types(value.dtype, torch.float32))


@dataclass(frozen=True)
class PolicyRates:
    """Learning rates of a policy; the fields of `TrainerSettings` of the same names."""

    matrix_rate: float
    other_rate: float
    adapter_rate: float


class TrainedPolicy(nn.Module):
    """A policy as the learner sees it: what it says of texts, and which of its parameters are trained."""

    def __init__(self, value_head: nn.Module | None = None) -> None:
        """`value_head`: the critic, a StateCritic or what reads prompts and texts by itself (`value_critic`)."""
        super().__init__()
        self.value_head = value_head

    @property
    def output_layer(self) -> nn.Module:
        """From final hidden states to logits: linear, without a bias."""
        raise NotImplementedError

    def hidden_states(self, prompts: PromptBatch | None, text: TextBatch) -> Tensor:
        """Final hidden states from which each text token is predicted, shape [B, T, H].

        `prompts`: what stands before the texts, None where nothing does.
        """
        raise NotImplementedError

    def policy_parameters(self) -> list[nn.Parameter]:
        """Those that are trained, without the critic's."""
        raise NotImplementedError

    def policy_optimizer(self, rates: PolicyRates) -> Optimizer:
        """A fresh one, of `policy_parameters`."""
        raise NotImplementedError

    def shipped(self) -> "TrainedPolicy":
        """The policy as it is now, frozen, without a critic; called before anything is trained."""
        raise NotImplementedError

    def return_to(self, shipped: "TrainedPolicy") -> None:
        """Take the shipped policy's weights; the critic stays."""
        raise NotImplementedError

    def take_published(self, path: Path) -> None:
        """Take the weights that `publish` left; the critic stays."""
        raise NotImplementedError

    def publish(self, path: Path, version: PolicyVersion) -> Digest:
        """The policy's weights, in bfloat16 and without the critic, as a generator takes them; written beside and
        renamed. Returns their digest."""
        raise NotImplementedError

    def published_name(self, version: PolicyVersion) -> str:
        """Of the file or folder."""
        raise NotImplementedError

    def kept_state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        return self.state_dict()

    def take_state(self, state: Mapping[str, Tensor]) -> None:
        """The inverse of `kept_state`."""
        self.load_state_dict(state)

    def trained_parameters(self) -> list[nn.Parameter]:
        """The policy's and the critic's."""
        critic = [] if self.value_head is None else list(self.value_head.parameters())
        return [*self.policy_parameters(), *critic]

    @contextmanager
    def rounded(self) -> Iterator[Self]:
        """As it is published, in bfloat16, for a while."""
        parameters = self.policy_parameters()
        exact = [parameter.detach().clone() for parameter in parameters]
        try:
            with torch.no_grad():
                for parameter in parameters:
                    parameter.copy_(parameter.to(torch.bfloat16))
            yield self
        finally:
            with torch.no_grad():
                for parameter, kept in zip(parameters, exact, strict=True):
                    parameter.copy_(kept)

    def distributions(self, hidden_BTH: Tensor, text: TextBatch, temperature: float | Tensor = 1.0) -> Tensor:
        """Log-probabilities of all words at each sampled token, [N, V], row by row: at least float32.

        They are of the distribution at this sampling temperature: one for all, or one a sequence, shape [B].
        """
        return word_logprobs(self.output_layer(hidden_BTH[text.sampled_mask_BT]), _of_tokens(temperature, text))

    def logprobs(self, hidden_BTH: Tensor, text: TextBatch, temperature: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """Log-probability of each text token, entropy of its distribution: shape [B, T]; 0 where not sampled.

        See `distributions`.
        """
        words_NV = self.distributions(hidden_BTH, text, temperature)
        return placed(chosen_logprobs(words_NV, text), text), placed(entropies(words_NV), text)

    def values(
        self, hidden_BTH: Tensor, prompts: PromptBatch | None, text: TextBatch, library_us_B: Tensor | None = None
    ) -> Tensor:
        """The critic's values, at least float32, shape [B, T]. `library_us_B`: of the best routine on each workload,
        microseconds; a StateCritic may want it. Raises ValueError without a critic."""
        if self.value_head is None:
            raise ValueError("these networks have no value head")
        if isinstance(self.value_head, StateCritic):
            of_states: Tensor = self.value_head(hidden_BTH, library_us_B)
            return of_states
        of_texts: Tensor = self.value_head(prompts, text)
        return of_texts


class PolicyNetworks(TrainedPolicy):
    """Language model, encoder and value head, run together over prompts with their texts."""

    def __init__(
        self,
        model: Qwen3ForCausalLM,
        encoder: MatrixEncoder,
        value_head: nn.Module | None = None,
    ) -> None:
        super().__init__(value_head)
        self.model = model
        self.encoder = encoder

    @property
    def output_layer(self) -> nn.Module:
        head: nn.Module = self.model.lm_head
        return head

    def hidden_states(self, prompts: PromptBatch | None, text: TextBatch) -> Tensor:
        """See TrainedPolicy. Padding stands on the right, so causal attention needs no mask."""
        assert prompts is not None, "a policy with an encoder is shown matrices"
        soft = self.encoder(prompts)
        words = self.model.get_input_embeddings()(text.token_ids_BT)
        inputs = torch.cat([soft.to(words.dtype), words], dim=1)
        mask = {"full_attention": None}
        hidden: Tensor = self.model.model(inputs_embeds=inputs, attention_mask=mask, use_cache=False).last_hidden_state
        return hidden[:, soft.shape[1] - 1 : -1]

    def policy_parameters(self) -> list[nn.Parameter]:
        return [*self.model.parameters(), *self.encoder.parameters()]

    def policy_optimizer(self, rates: PolicyRates) -> Optimizer:
        networks = [self.model, self.encoder]
        return Optimizer(networks, matrix_rate=rates.matrix_rate, other_rate=rates.other_rate, decay=0.0)

    def shipped(self) -> "PolicyNetworks":
        return copy.deepcopy(PolicyNetworks(self.model, self.encoder)).eval().requires_grad_(False)

    def return_to(self, shipped: TrainedPolicy) -> None:
        assert isinstance(shipped, PolicyNetworks)
        self.model.load_state_dict(shipped.model.state_dict())
        self.encoder.load_state_dict(shipped.encoder.state_dict())

    def take_published(self, path: Path) -> None:
        tensors = {name: value.float() for name, value in load_file(path).items()}
        encoder = {name for name in tensors if name.startswith(ENCODER_PREFIX)}
        self.encoder.load_state_dict({name.removeprefix(ENCODER_PREFIX): tensors[name] for name in encoder})
        model = {name: value for name, value in tensors.items() if name not in encoder}
        self.model.load_state_dict(model, strict=False)  # A tied output head may be left out.

    def publish(self, path: Path, version: PolicyVersion) -> Digest:
        kind = self.encoder.kind
        description = PolicyDescription("online", kind, FEATURE_VERSIONS[kind], version)
        return write_published_weights(Policy(self.model, self.encoder, description), path)

    def published_name(self, version: PolicyVersion) -> str:
        return f"policy-{version}.safetensors"
