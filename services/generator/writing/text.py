"""The service's own language model, asked in words through its chat template: any instruct model that vLLM serves."""

import asyncio
from typing import Literal, Protocol, runtime_checkable

from services.generator.policy.engine import EngineFailed, TokenPrompt
from services.generator.policy.sampling import MAX_ATTEMPTS, PolicySampler
from services.generator.writing.model import Answer, TooLong
from services.generator.writing.writer import NoAnswer
from sparsesmith.errors import Unavailable
from sparsesmith.prompts.dialogue import Dialogue

ENGINE_PATIENCE_S = 120.0
"""For an answer, behind others' samples; an engine that still loads is not waited for longer."""


@runtime_checkable
class ChatPrompts(Protocol):
    """`services.generator.policy.text_policy.TextPrompts`."""

    def chat(self, asked: Dialogue) -> TokenPrompt: ...


class TextModel:
    """Samples at the service's temperature. Nobody learns from them. See Model."""

    name: Literal["text"] = "text"
    patience_s = ENGINE_PATIENCE_S

    def __init__(self, sampler: PolicySampler, prompts: ChatPrompts, model: str, at_once: int) -> None:
        self._sampler = sampler
        self._prompts = prompts
        self.model = model
        self.at_once = at_once

    async def answer(self, asked: Dialogue) -> Answer:
        """See Model."""
        options = self._sampler.options
        prompt = await asyncio.to_thread(self._prompts.chat, asked)
        if self._sampler.is_broken:
            raise Unavailable("the engine could not be loaded", field="refine.writer", value=self.name)
        for _ in range(MAX_ATTEMPTS):
            engine = await self._sampler.host.serving()
            limit = engine.max_context_tokens - options.max_program_tokens
            if len(prompt.token_ids) > limit:
                raise TooLong(len(prompt.token_ids), limit)
            try:
                async with self._sampler.gate.passing():
                    sample = await engine.sample(
                        prompt, temperature=options.temperature, max_tokens=options.max_program_tokens
                    )
            except EngineFailed:
                continue
            return Answer(sample.text, len(prompt.token_ids), len(sample.token_ids))
        raise NoAnswer("engine", f"no engine held out for an answer {MAX_ATTEMPTS} times")
