"""What a policy said of a batch, over all words: exact distances from it cost an output layer, not a forward pass."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from services.trainer.online.batch import SampleBatch
from services.trainer.policy_model import word_logprobs


class Snapshot:
    """Final hidden states at the sampled tokens of each program, and the output layer: one number a token for each of
    the model's widths, where the distribution has one for each word."""

    def __init__(self, output_layer: nn.Module) -> None:
        """Its weights are copied where they are trained: the policy may go on."""
        weight: Tensor = output_layer.get_parameter("weight")
        self._output_VH = weight.detach().clone() if weight.requires_grad else weight.detach()
        self._hidden: dict[int, Tensor] = {}

    def keep(self, rows: Sequence[int], hidden_BTH: Tensor, batch: SampleBatch) -> None:
        """Of these rows of the batch; `hidden_BTH` and `batch` hold them alone."""
        for row, hidden_TH, mask_T in zip(rows, hidden_BTH, batch.text.sampled_mask_BT, strict=True):
            self._hidden[row] = hidden_TH[mask_T].detach()

    def distributions(self, rows: Sequence[int], batch: SampleBatch) -> Tensor:
        """Log-probabilities of all words at the sampled tokens of these rows, [N, V], as `TrainedPolicy.distributions`
        gave them."""
        hidden_NH = torch.cat([self._hidden[row] for row in rows])
        lengths_B = batch.text.sampled_mask_BT.sum(dim=1)
        temperature_N = batch.temperature_B.repeat_interleave(lengths_B)
        logits_NV = torch.nn.functional.linear(hidden_NH, self._output_VH)
        return word_logprobs(logits_NV, temperature_N[:, None])
