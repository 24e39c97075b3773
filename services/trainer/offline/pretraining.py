"""Stage one: the language model reads CUDA source, packed into sequences, for a fixed time.

The budget is wall time: the learning rate follows the share of it that is gone, so a run ends fully decayed on any
machine. Weights stay in float32; the arithmetic is bfloat16 where the device has it.
"""

import lzma
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import Qwen3ForCausalLM

from services.trainer.offline.saved_run import NO_SAVED_RUN, SavedRun, State
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.precision import precision
from services.trainer.tokenizer import BOS, EOS

TokenArray = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class PretrainingSettings:
    """How long and how fast."""

    seconds: float = 200.0
    """Wall time of the training loop, compilation of the graph included."""
    max_epochs: float = 8.0
    sequence_length: int = 1024
    """Tokens."""
    batch_sequences: int = 128
    """Sequences an update."""
    micro_batch: int = 64
    """Sequences that are in memory at a time."""
    matrix_rate: float = 3e-3
    other_rate: float = 2e-3
    weight_decay: float = 0.05
    device: str = "cpu"
    compile: bool = False
    seed: int = 0
    log_every_s: float = 10.0


@dataclass(frozen=True)
class PretrainingReport:
    """What a run did."""

    steps: int
    tokens: int
    epochs: float
    seconds: float
    train_loss: float
    """Mean of the last updates, nats a token."""
    held_out_loss: float
    """Nats a token."""
    held_out_bits_per_byte: float


def pack(tokenizer: Tokenizer, texts: Iterable[str]) -> TokenArray:
    """All texts in one row of token ids, each as `<bos>` text `<eos>`."""
    bos, eos = tokenizer.token_to_id(BOS), tokenizer.token_to_id(EOS)
    if tokenizer.get_vocab_size() > 2**16:
        raise ValueError(f"vocabulary of {tokenizer.get_vocab_size()} does not fit 16 bits")
    pieces = [
        np.array([bos, *encoding.ids, eos], dtype=np.uint16)
        for batch in _batches(texts, 256)
        for encoding in tokenizer.encode_batch(batch, add_special_tokens=False)
    ]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.uint16)


def save_tokens(path: Path, tokens: TokenArray) -> None:
    """Little-endian 16-bit ids, compressed with xz."""
    path.write_bytes(lzma.compress(tokens.astype("<u2").tobytes(), preset=6))


def load_tokens(path: Path) -> TokenArray:
    """The inverse of `save_tokens`."""
    return np.frombuffer(lzma.decompress(path.read_bytes()), dtype="<u2").astype(np.uint16)


def pretrain(
    model: Qwen3ForCausalLM,
    train: TokenArray,
    held_out: TokenArray,
    held_out_bytes: int,
    settings: PretrainingSettings,
    log: Callable[[str], None] = print,
    saved: SavedRun = NO_SAVED_RUN,
) -> PretrainingReport:
    """Trains in place until the time or the epochs are used up, then measures the held-out loss."""
    device = torch.device(settings.device)
    nn.Module.to(model, device)
    model.train()
    optimizer = Optimizer(
        [model], matrix_rate=settings.matrix_rate, other_rate=settings.other_rate, decay=settings.weight_decay
    )
    loss_of = _loss_function(model, settings)
    schedule, clock = Schedule(), Clock(settings.seconds)
    sequences = Sequences(torch.from_numpy(train.astype(np.int32)).to(device), settings)
    losses: list[Tensor] = []
    steps, seen = 0, 0
    if (state := saved.state()) is not None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        steps, seen, clock = state["steps"], state["seen"], Clock(settings.seconds, spent_s=state["seconds"])
        log(f"goes on at step {steps}")

    def state_now() -> State:
        weights, seconds = model.state_dict(), clock.elapsed_s()
        kept = {"model": weights, "optimizer": optimizer.state_dict(), "seconds": seconds}
        return {**kept, "steps": steps, "seen": seen}

    while (progress := max(clock.progress(), seen / (settings.max_epochs * max(len(train), 1)))) < 1.0:
        batch = sequences.batch(steps)
        losses.append(_accumulate(loss_of, batch, settings))
        optimizer.step(schedule.factor(progress))
        steps, seen = steps + 1, seen + batch.shape[0] * settings.sequence_length
        saved.offer(state_now)
        if clock.due(settings.log_every_s):
            mean = float(torch.stack(losses[-20:]).mean())
            log(f"step {steps} {clock.elapsed_s():.0f} s epoch {seen / len(train):.2f} loss {mean:.4f}")
    trained_s = clock.elapsed_s()
    held_out_loss = mean_loss(model, held_out, settings)
    bits = held_out_loss * len(held_out) / max(held_out_bytes, 1) / math.log(2)
    last = float(torch.stack(losses[-20:]).mean()) if losses else math.nan
    return PretrainingReport(steps, seen, seen / max(len(train), 1), trained_s, last, held_out_loss, bits)


def mean_loss(model: Qwen3ForCausalLM, tokens: TokenArray, settings: PretrainingSettings) -> float:
    """Mean next-token loss over all full sequences, nats a token; NaN where there are not two tokens."""
    if len(tokens) < 2:
        return math.nan
    was_training = model.training
    model.train(False)
    length = min(settings.sequence_length, len(tokens) - 1)
    starts = range(0, len(tokens) - length, length)
    rows = torch.stack([torch.from_numpy(tokens[start : start + length + 1].astype(np.int64)) for start in starts])
    with torch.no_grad(), precision(settings.device):
        losses = [
            float(sequence_loss(model, part.to(settings.device))) * len(part)
            for part in torch.split(rows, settings.micro_batch)
        ]
    model.train(was_training)
    return sum(losses) / len(rows)


def sequence_loss(model: Qwen3ForCausalLM, rows: Tensor) -> Tensor:
    """Mean next-token loss of token rows, shape [batch, length + 1]."""
    # An explicit "no mask" keeps attention on the plain causal (flash) kernel, under torch.compile too.
    mask = {"full_attention": None}
    hidden = model.model(input_ids=rows[:, :-1], attention_mask=mask, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


class Clock:
    """Wall time against a budget."""

    def __init__(self, budget_s: float, spent_s: float = 0.0) -> None:
        """`spent_s`: before this process, in a run that goes on."""
        self._budget_s = budget_s
        self._last = time.monotonic()
        self._start = self._last - spent_s

    def elapsed_s(self) -> float:
        return time.monotonic() - self._start

    def progress(self) -> float:
        """Share of the budget that is gone."""
        return self.elapsed_s() / self._budget_s

    def due(self, every_s: float) -> bool:
        """True once every `every_s` seconds."""
        if time.monotonic() - self._last < every_s:
            return False
        self._last = time.monotonic()
        return True


def _loss_function(model: Qwen3ForCausalLM, settings: PretrainingSettings) -> Callable[[Tensor], Tensor]:
    def loss(rows: Tensor) -> Tensor:
        return sequence_loss(model, rows)

    return torch.compile(loss) if settings.compile else loss


def _accumulate(loss_of: Callable[[Tensor], Tensor], batch: Tensor, settings: PretrainingSettings) -> Tensor:
    """Forward and backward over the micro-batches; the mean loss, detached."""
    parts = torch.split(batch, settings.micro_batch)
    total = torch.zeros((), device=batch.device)
    for part in parts:
        with precision(settings.device):
            loss = loss_of(part) * (len(part) / len(batch))
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    return total


class Sequences:
    """Batches of shape [batch_sequences, sequence_length + 1], by number; each epoch cuts at another offset."""

    def __init__(self, tokens: Tensor, settings: PretrainingSettings) -> None:
        length = settings.sequence_length
        if len(tokens) < 2 * length + 1:
            raise ValueError(f"{len(tokens)} tokens: at least {2 * length + 1} are needed for sequences of {length}")
        self._tokens = tokens
        self._settings = settings
        self._window = torch.arange(length + 1, device=tokens.device)
        self._epoch, self._starts = -1, torch.zeros(0, dtype=torch.long)
        shortest = len(range(length - 1, len(tokens) - length, length))
        self._batches = max(1, shortest // settings.batch_sequences)
        """Of every epoch, wherever it is cut."""

    def batch(self, step: int) -> Tensor:
        epoch, place = divmod(step, self._batches)
        if epoch != self._epoch:
            self._epoch, self._starts = epoch, self._cut(epoch)
        size = self._settings.batch_sequences
        chosen = self._starts[place * size : (place + 1) * size]
        return self._tokens[chosen.to(self._tokens.device)[:, None] + self._window].long()

    def _cut(self, epoch: int) -> Tensor:
        generator = torch.Generator().manual_seed(self._settings.seed * 1_000_003 + epoch)
        length = self._settings.sequence_length
        offset = int(torch.randint(length, (), generator=generator))
        starts = torch.arange(offset, len(self._tokens) - length, length)
        return starts[torch.randperm(len(starts), generator=generator)]


def _batches(texts: Iterable[str], size: int) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
