"""What the engine's worker process can do beyond vLLM: take new weights while it serves, and end with its parent.

Mixed into vLLM's worker class by name, so it has no constructor. Works on CPU and CUDA workers of vLLM 0.26 and 0.32.
"""

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from sparsesmith.policy.description import ENCODER_PREFIX

GENERATOR_PID = "SPARSESMITH_GENERATOR_PID"
"""Environment variable that the engine is started with: the process that it must not outlive."""


class PolicyWorkerExtension:
    """Methods reached through `collective_rpc`."""

    device: Any
    model_runner: Any
    vllm_config: Any

    def load_policy(self, paths: list[str]) -> int:
        """Replace the language model's weights by those of safetensors files; returns how many tensors were loaded.

        Only between pause and resume: from initialize to finalize the weights are not there.
        """
        import torch
        from safetensors import safe_open
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        model = self.model_runner.get_model()
        with (
            set_current_vllm_config(self.vllm_config),
            torch.device(self.device),
            torch.no_grad(),
            ExitStack() as opened,
        ):
            files = [opened.enter_context(safe_open(path, "pt")) for path in paths]
            initialize_layerwise_reload(model)
            loaded = model.load_weights(pair for weights in files for pair in _language_model_tensors(weights))
            finalize_layerwise_reload(model, self.model_runner.model_config)  # type: ignore[no-untyped-call]
        if self.device.type == "cpu":
            _repack_tied_head(model)
        else:
            torch.cuda.synchronize()
        return len(loaded or ())


def _language_model_tensors(weights: Any) -> Iterator[tuple[str, Any]]:
    return ((name, weights.get_tensor(name)) for name in weights.keys() if not name.startswith(ENCODER_PREFIX))  # noqa: SIM118


def _repack_tied_head(model: Any) -> None:
    """vLLM 0.32 on a CPU computes logits from a packed copy of a tied embedding, which a reload leaves as it was."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    for module in model.modules():
        if hasattr(module, "cpu_linear") and hasattr(module, "num_embeddings") and module.weight.numel():
            dispatch_cpu_unquantized_gemm(module, remove_weight=False)


def _end_with(generator: int) -> None:
    """Watch the generator's process and end with it: killed, it must not leave an engine behind."""
    watch = os.pidfd_open(generator)
    threading.Thread(target=_end_when_gone, args=(watch, os.getppid(), generator), name="end-with", daemon=True).start()


def _end_when_gone(watch: int, core: int, generator: int) -> None:
    """Wait for the generator's end, then end the engine's core (the parent, unless that is the generator)."""
    select.select([watch], [], [])
    if core != generator and os.getppid() == core:
        os.kill(core, signal.SIGKILL)
    os._exit(1)


# vLLM imports this module by name in its worker, before it loads the model: the one moment when the watch can start
# early enough to cover a generator that is killed while the engine loads.
if (_generator := os.environ.get(GENERATOR_PID)) and int(_generator) != os.getpid():
    _end_with(int(_generator))
