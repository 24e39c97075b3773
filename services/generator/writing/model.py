"""A writer that is a language model asked in words: the dialogue is ours, the answer is any model's."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from services.generator.task import TuningTask
from services.generator.writing.account import WritingAccount
from services.generator.writing.floor import floor_us
from services.generator.writing.texts import program_in, program_of, program_told_of
from services.generator.writing.writer import Ask, Attempt, Beginning, NoAnswer
from sparsesmith.errors import LimitExceeded
from sparsesmith.prompts.brief import Gpu, brief
from sparsesmith.prompts.dialogue import Dialogue, Turn, dialogue
from sparsesmith.prompts.feedback import failure, success
from sparsesmith.prompts.suggestions import Circumstance
from sparsesmith_proto.kernel import Candidate, DeviceDescription, Passed, Written


@dataclass(frozen=True)
class Answer:
    """What a model said."""

    text: str
    prompt_tokens: int | None = None
    """None: nobody counted them."""
    completion_tokens: int | None = None


class TooLong(Exception):
    """A dialogue does not fit the model's context."""

    def __init__(self, num_tokens: int, limit: int) -> None:
        super().__init__(f"{num_tokens} tokens, at most {limit}")
        self.num_tokens = num_tokens
        self.limit = limit


class Model(Protocol):
    """Answers dialogues. Shared by all searches of a service."""

    @property
    def name(self) -> Literal["text", "endpoint"]: ...

    @property
    def model(self) -> str:
        """As people call it."""
        ...

    @property
    def at_once(self) -> int:
        """Questions of one search that may be under way."""
        ...

    @property
    def patience_s(self) -> float:
        """An answer may take so long."""
        ...

    async def answer(self, asked: Dialogue) -> Answer:
        """Raises NoAnswer, TooLong, Unavailable."""
        ...


@dataclass(frozen=True)
class ModelOptions:
    """What every model is told."""

    gpu: Gpu
    """Until a report tells of the evaluator's own."""
    history_characters: int


class ModelWriter:
    """Two chains: one begins with the first programs, the other with the operation's words alone. See Writer."""

    beginnings: tuple[Beginning, ...] = ("words", "programs")
    repairs = True

    def __init__(self, task: TuningTask, model: Model, options: ModelOptions) -> None:
        self._task = task
        self._model = model
        self._options = options
        self._brief: tuple[Gpu, str] | None = None
        self._num_sent = 0
        self.name = model.name
        self.at_once = model.at_once
        self.patience_s = model.patience_s
        self.account = WritingAccount(model.model)

    def takes(self, attempt: Attempt) -> bool:
        """Any program."""
        return True

    async def write(self, ask: Ask) -> Candidate:
        began = time.monotonic()
        told, suggestions = "", tuple[str, ...]()
        turns: list[Turn] = []
        if ask.parent is not None:
            told, suggestions = self._told(ask.parent)
            turns = [*self._turns_before(ask.parent), Turn(program_of(ask.parent.candidate), told)]
        answer = await self._answer(await self._words(ask.parent), turns)
        if not answer.text.strip():
            raise NoAnswer("empty", "the model said nothing")
        written = Written(
            writer=self._model.name,
            model=self._model.model,
            parent=None if ask.parent is None else ask.parent.candidate.candidate_id,
            generation=ask.generation,
            report=told,
            suggestions=suggestions,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            seconds=time.monotonic() - began,
        )
        self.account.answered(written.prompt_tokens, written.completion_tokens, written.seconds)
        name = f"{self._task.run_id}-w{self._num_sent}"
        self._num_sent += 1
        return Candidate(candidate_id=name, program=program_in(answer.text), origin=written)

    async def _answer(self, words: str, turns: Sequence[Turn]) -> Answer:
        """Without the turns before the last where the context is too small for all. Raises LimitExceeded where it is
        too small for the words alone."""
        try:
            return await self._model.answer(dialogue(words, turns, self._options.history_characters))
        except TooLong:
            pass
        try:
            return await self._model.answer(dialogue(words, turns[-1:], 0))
        except TooLong as error:
            if turns:
                raise NoAnswer("too long", f"a prompt of {error}") from error
            name = self._model.name
            raise LimitExceeded(
                f"refine.writer: a prompt of {error.num_tokens} tokens does not fit the context of {name}, which "
                f"leaves "
                f"{error.limit} beside the program",
                field="refine.writer",
                value=error.num_tokens,
                limit=error.limit,
            ) from error

    async def _words(self, parent: Attempt | None) -> str:
        """The brief, written once for each device."""
        gpu = self._options.gpu if parent is None else _gpu_of(parent.report.device)
        if self._brief is None or (parent is not None and self._brief[0] != gpu):
            self._brief = gpu, await asyncio.to_thread(brief, self._task.problem, gpu)
        return self._brief[1]

    def _turns_before(self, parent: Attempt) -> list[Turn]:
        """What the parent was made of, the oldest first."""
        turns, attempt = [], parent.before
        while attempt is not None:
            turns.append(Turn(program_of(attempt.candidate), self._told(attempt)[0]))
            attempt = attempt.before
        return turns[::-1]

    def _told(self, attempt: Attempt) -> tuple[str, tuple[str, ...]]:
        """What is said of a program, and the names of the suggestions in it."""
        outcome, program = attempt.outcome, program_told_of(attempt.candidate, attempt.outcome)
        if not isinstance(outcome, Passed):
            return failure(program, outcome), ()
        device = attempt.report.device
        circumstance = Circumstance(
            passed=outcome,
            baseline_us=attempt.baseline_us,
            floor_us=floor_us(self._task.problem, device),
            floor_bytes=self._task.problem.floor.bytes_moved,
            num_sms=device.num_sms,
        )
        name = attempt.candidate.candidate_id
        profile = next((each for each in attempt.report.profiles if each.candidate_id == name), None)
        told, made = success(program, circumstance, self._task.order.options.refine.feedback, profile)
        return told, tuple(each.name for each in made)


def _gpu_of(device: DeviceDescription) -> Gpu:
    """An interpreter stands for a device of its architecture."""
    name = device.name if device.kind == "cuda" else ""
    return Gpu(device.architecture, name, device.num_sms, device.copy_bandwidth_gbs)
