"""A language model that is asked in words, trained by adapters: two factors beside each weight matrix of its layers.

LoRA (Hu et al. 2021) by peft. The model itself stays as it is: it is the reference, with the adapters switched off, and
nothing of it is in checkpoints or published folders. The factor that is zero at first makes a fresh adapter the model.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from services.trainer.durable import moved, removed, sync
from services.trainer.optimizers import Optimizer
from services.trainer.policy_model import PolicyRates, TextBatch, TrainedPolicy
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.adapter import ADAPTER_FILES, BASE, CONFIG_FILE, WEIGHTS_FILE, adapter_digest
from sparsesmith.policy.encoder import PromptBatch
from sparsesmith_proto.message import Digest, PolicyVersion

SAME_LOGITS = 1e-3
"""Of the largest logit: what an output layer of its own gives, against the model's own words."""


@dataclass(frozen=True)
class AdapterOptions:
    """Of adapters; the fields of `TrainerSettings` that concern them, where each is explained."""

    adapter_rank: int = 16
    adapter_scale: float = 2.0
    recomputes_layers: bool = True


class AdaptedModel(TrainedPolicy):
    """A causal language model of Hugging Face with adapters in all linear layers but the last."""

    def __init__(self, model: Any, base: Digest, options: AdapterOptions, value_head: nn.Module | None = None) -> None:
        """`base`: the model's identity, which published adapters name. The model is changed in place.

        Raises InvalidOption where the rank is above the model's width, or where peft is not installed.
        """
        super().__init__(value_head)
        width = int(model.config.hidden_size)
        if not 1 <= options.adapter_rank <= width:
            raise InvalidOption(
                f"adapter_rank {options.adapter_rank}: from 1 to the model's width, {width}",
                field="adapter_rank",
                value=options.adapter_rank,
                limit=width,
            )
        self.base = base
        self.model = _adapted(model, options)
        self._layers = _recomputed(model) if options.recomputes_layers else ()
        model.requires_grad_(False)
        for _, factor in self._factors():
            factor.requires_grad_(True)

    @property
    def output_layer(self) -> nn.Module:
        return cast(nn.Module, self.model.get_output_embeddings())

    def train(self, mode: bool = True) -> "AdaptedModel":
        """Layers that are computed again on the way back are told so by this flag; it is theirs alone, so that no
        dropout wakes up within."""
        super().train(mode)
        for layer in self._layers:
            layer.training = True
        return self

    def hidden_states(self, prompts: PromptBatch | None, text: TextBatch) -> Tensor:
        """See TrainedPolicy. Padding stands on the right, so causal attention needs no mask."""
        assert prompts is None, "a policy that is asked in words has no encoder"
        trunk = self.model.get_base_model().base_model
        hidden: Tensor = trunk(input_ids=text.token_ids_BT[:, :-1], use_cache=False).last_hidden_state
        return nn.functional.pad(hidden, (0, 0, 1, 0))  # Nothing foretells the first token, which is never sampled.

    def policy_parameters(self) -> list[nn.Parameter]:
        return [factor for _, factor in self._factors()]

    def policy_optimizer(self, rates: PolicyRates) -> Optimizer:
        return Optimizer.plain(self.policy_parameters(), rates.adapter_rate)

    def shipped(self) -> "BaseModel":
        return BaseModel(self)

    def return_to(self, shipped: TrainedPolicy) -> None:
        with torch.no_grad():
            for name, factor in self._factors():
                if "lora_B" in name:
                    factor.zero_()

    def take_published(self, path: Path) -> None:
        self._take({_own_name(name): factor for name, factor in load_file(path / WEIGHTS_FILE).items()})

    def publish(self, path: Path, version: PolicyVersion) -> Digest:
        partial = path.with_name(path.name + ".part")
        removed(partial)
        partial.mkdir()
        factors = {
            _published_name(name): factor.detach().to("cpu", torch.bfloat16, copy=True).contiguous()
            for name, factor in self._factors()
        }
        # One word of metadata: safetensors writes several in any order, and equal weights must give equal bytes.
        save_file(factors, partial / WEIGHTS_FILE, metadata={BASE: self.base})
        config = json.dumps(_config_of(self.model), indent=2, sort_keys=True)
        (partial / CONFIG_FILE).write_text(config + "\n", encoding="utf-8")
        for name in ADAPTER_FILES:
            (partial / name).chmod(0o644)
            sync(partial / name)
        digest = adapter_digest(partial)
        moved(partial, path)
        return digest

    def published_name(self, version: PolicyVersion) -> str:
        return f"policy-{version}"

    def kept_state(self) -> dict[str, Tensor]:
        kept = {name for name, _ in self._factors()}
        critic = [name for name, _ in self.named_parameters() if name.startswith("value_head.")]
        return {name: tensor for name, tensor in self.state_dict().items() if name in {*kept, *critic}}

    def take_state(self, state: Mapping[str, Tensor]) -> None:
        own = self.kept_state()
        if state.keys() != own.keys():
            differing = sorted(state.keys() ^ own.keys())[0]
            raise ValueError(f"the state is of other adapters: {differing} is in one of the two")
        self.load_state_dict(dict(state), strict=False)

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Without the adapters."""
        with self.model.disable_adapter():
            yield

    def _take(self, factors: Mapping[str, Tensor]) -> None:
        with torch.no_grad():
            for name, factor in self._factors():
                factor.copy_(factors[name])

    def _factors(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, each) for name, each in self.named_parameters() if ".lora_A." in name or ".lora_B." in name]


class BaseModel(TrainedPolicy):
    """An adapted model without its adapters: the policy as shipped, at no cost in memory."""

    def __init__(self, adapted: AdaptedModel) -> None:
        super().__init__()
        self._adapted = (adapted,)  # In a tuple, it is not a part of this module.

    @property
    def output_layer(self) -> nn.Module:
        return self._adapted[0].output_layer

    def hidden_states(self, prompts: PromptBatch | None, text: TextBatch) -> Tensor:
        """Without gradients: the switch is thrown back before any would be computed."""
        with torch.no_grad(), self._adapted[0].switched_off():
            return self._adapted[0].hidden_states(prompts, text)


_ADAPTER = "default"
"""peft's name of the only adapter."""


def _adapted(model: Any, options: AdapterOptions) -> Any:
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise InvalidOption(
            f"adapter_rank {options.adapter_rank}: adapters need the extra `lora` (pip install 'sparsesmith[lora]')",
            field="adapter_rank",
            value=options.adapter_rank,
            limit=0,
        ) from error
    alpha: Any = options.adapter_scale * options.adapter_rank  # peft says integer, and reads any number.
    config = LoraConfig(
        r=options.adapter_rank, lora_alpha=alpha, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.0
    )
    return get_peft_model(model, config)


def _config_of(model: Any) -> dict[str, Any]:
    """As peft writes it, with the names of adapted weights in order; where the model lies is each machine's own."""
    config: dict[str, Any] = model.peft_config[_ADAPTER].to_dict()
    adapted = sorted(config["target_modules"])
    return {**config, "target_modules": adapted, "inference_mode": True, "base_model_name_or_path": None}


def _recomputed(model: Any) -> Sequence[nn.Module]:
    """Layers whose inner states are computed again for the gradients, in the place of being kept."""
    if not model.supports_gradient_checkpointing:
        return ()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def _published_name(own: str) -> str:
    """`model.base_model.model.X.lora_A.default.weight` -> `base_model.model.X.lora_A.weight`, as peft saves it."""
    return own.removeprefix("model.").replace(f".{_ADAPTER}.weight", ".weight")


def _own_name(published: str) -> str:
    return f"model.{published.removesuffix('.weight')}.{_ADAPTER}.weight"


def check_output_layer(policy: AdaptedModel) -> None:
    """Raises InvalidOption where logits are not a linear layer of the final hidden states: a softcap or a scale."""
    model, ids = policy.model.get_base_model(), torch.arange(4, device=policy.model.device)[None]
    with torch.no_grad():
        said = model(input_ids=ids, use_cache=False).logits.float()
        ours = policy.output_layer(model.base_model(input_ids=ids, use_cache=False).last_hidden_state).float()
    worst = float((said - ours).abs().max() / said.abs().max().clamp(min=1e-6))
    if not worst <= SAME_LOGITS or getattr(policy.output_layer, "bias", None) is not None:
        raise InvalidOption(
            f"policy_dir: the logits of {model.config.model_type} are not those of its output layer alone "
            f"(they differ by {worst:.2g} of the largest): adapters cannot be trained",
            field="policy_dir",
            value=model.config.model_type,
            limit=SAME_LOGITS,
        )
