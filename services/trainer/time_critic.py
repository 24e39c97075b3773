"""A critic that was taught what measured programs take, from the policy's own hidden states.

Of a program that is being written it expects the time; what the library takes for the same workload it is told, as the
policy is not: the two give the reward. That is no bias, since the library's time has nothing to do with what is sampled
(an asymmetric critic: Pinto et al., 2017). What is left, another device and programs that fail, it learns live.
"""

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from services.trainer.policy_model import StateCritic, ValueHead
from sparsesmith.errors import InvalidOption
from sparsesmith.reward import CORRECT, FASTEST, SLOWEST

CRITIC_FILE = "critic.safetensors"
"""In a policy's folder, beside the weights that it was taught on."""


class TimeHead(nn.Module):
    """Binary logarithm of the microseconds that a program takes, from the final hidden state before each token."""

    def __init__(self, hidden: int, width: int = 256) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(hidden, width), nn.Linear(width, 1)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Shape [..., hidden] -> [...], float32."""
        times: Tensor = self.last(F.gelu(self.first(hidden_states.to(self.first.weight.dtype)))).squeeze(-1)
        return times.float()


class TimeCritic(StateCritic):
    """Rewards of the scheme `milestone`: what follows from the two times, and a head on top that is learned live."""

    def __init__(self, times: TimeHead, hidden: int) -> None:
        super().__init__()
        self.times = times.requires_grad_(False)
        self.rest = ValueHead(hidden)

    def forward(self, hidden_states_BTH: Tensor, library_us_B: Tensor | None = None) -> Tensor:
        if library_us_B is None:
            raise ValueError("a critic of times is told what the library takes")
        doublings = library_us_B.log2()[:, None] - self.times(hidden_states_BTH)
        values: Tensor = CORRECT + doublings.clamp(SLOWEST, FASTEST) + self.rest(hidden_states_BTH)
        return values


def save_time_head(head: TimeHead, folder: Path) -> None:
    """Into a policy's folder."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in head.state_dict().items()}
    save_file(tensors, folder / CRITIC_FILE)


def load_time_critic(folder: Path, hidden: int) -> TimeCritic | None:
    """Of a policy's folder, None where it holds none. Raises InvalidOption for one of other hidden states."""
    path = folder / CRITIC_FILE
    if not path.is_file():
        return None
    tensors = load_file(path)
    width, told = tensors["first.weight"].shape
    if told != hidden:
        raise InvalidOption(
            f"policy_dir: {path} reads hidden states of {told} numbers, the policy's have {hidden}",
            field="policy_dir",
            value=told,
            limit=hidden,
        )
    head = TimeHead(hidden, width)
    head.load_state_dict(tensors)
    return TimeCritic(head, hidden)
