"""Muon in float32 against torch's own in bfloat16."""

import copy
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from services.trainer.muon import Muon, orthogonalized

DEFAULTS = (3.4445, -4.7750, 2.0315), 5, 1e-7


class ProductTypes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the types of all matrix products."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[torch.dtype] = set()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.seen.add(result.dtype)
        return result


def make_parameter(rows: int, cols: int) -> torch.nn.Parameter:
    torch.manual_seed(rows)
    return torch.nn.Parameter(torch.randn(rows, cols))


def stepped(optimizer: torch.optim.Optimizer, parameter: torch.nn.Parameter, seed: int) -> torch.Tensor:
    parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed))
    optimizer.step()
    return parameter.detach().clone()


def test_a_cpu_multiplies_in_float32_alone() -> None:
    parameter = make_parameter(24, 16)
    with ProductTypes() as products:
        stepped(Muon([parameter], lr=0.1, weight_decay=0.0), parameter, 0)
    assert products.seen == {torch.float32}


@pytest.mark.parametrize("shape", [(24, 16), (16, 24), (16, 16)])
def test_steps_are_those_of_torchs_own_up_to_rounding(shape: tuple[int, int]) -> None:
    ours, theirs = make_parameter(*shape), make_parameter(*shape)
    own = Muon([ours], lr=0.1, weight_decay=0.1)
    torchs = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for seed in range(4):
        before = ours.detach().clone()
        difference = stepped(own, ours, seed) - stepped(torchs, theirs, seed)
        assert float(difference.norm() / (ours.detach() - before).norm()) < 0.03 * (seed + 1)


def test_checkpoints_of_torchs_own_are_gone_on_from() -> None:
    theirs = make_parameter(12, 16)
    torchs = torch.optim.Muon([theirs], lr=0.1, weight_decay=0.0, adjust_lr_fn="match_rms_adamw")
    stepped(torchs, theirs, 0)
    ours = torch.nn.Parameter(theirs.detach().clone())
    own = Muon([ours], lr=0.1, weight_decay=0.0)
    own.load_state_dict(copy.deepcopy(torchs.state_dict()))
    step = stepped(own, ours, 1) - theirs.detach()
    assert float((stepped(torchs, theirs, 1) - ours.detach()).norm() / step.norm()) < 0.03


def test_what_comes_out_is_nearly_orthogonal() -> None:
    values = torch.linalg.svdvals(orthogonalized(torch.randn(20, 50), *DEFAULTS))
    assert float(values.min()) > 0.5 and float(values.max()) < 1.5


def test_short_numbers_on_a_cpu_move_a_parameter_nearly_as_long_ones_do() -> None:
    moves = []
    for bfloat16 in (False, True):
        parameter = make_parameter(12, 16)
        before = parameter.detach().clone()
        moves.append(stepped(Muon([parameter], lr=0.1, weight_decay=0.0, bfloat16=bfloat16), parameter, 0) - before)
    assert 0 < float((moves[1] - moves[0]).norm() / moves[0].norm()) < 0.03


def test_a_parameter_without_a_gradient_stays() -> None:
    parameter = make_parameter(4, 4)
    before = parameter.detach().clone()
    Muon([parameter], lr=0.1, weight_decay=0.5).step()
    assert torch.equal(parameter, before)
