"""The vLLM engine: samples from the policy, takes new weights while it serves. The only module that imports vLLM.

What it does not protect against: a weights file that passes `weights.check_weights` and still does not load ends the
engine (`EngineFailed`), and its host starts a fresh one.
"""

import asyncio
import multiprocessing
import os
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sparsesmith.policy.chat import digest_of
from sparsesmith_proto.message import Digest, PolicyVersion

if TYPE_CHECKING:
    import torch

ADAPTERS_AT_ONCE = 2
"""The newest, and the one before for samples that began under it; further ones wait for a place."""
RANKS = (8, 16, 32, 64, 128, 256, 512)
"""Of adapters, as vLLM makes room for them."""
EXTENSION = "services.generator.policy.worker_extension.PolicyWorkerExtension"
LOAD_TIMEOUT_S = 600.0
COUNTED_S = 0.005
"""After so long without another token none is on its way."""

Result = TypeVar("Result")


class EngineFailed(Exception):
    """The engine is dead; what it was sampling is lost and may be sampled again on a fresh one."""


class RefusedAdapter(ValueError):
    """The engine goes on as it was, without the adapter."""


class InvalidPrompt(ValueError):
    """The prompt would end the engine or is no prompt for it: wrong shape or type, not finite, too long."""


@dataclass(frozen=True)
class EngineOptions:
    """What an engine is started with; the fields of `GeneratorSettings` that concern it."""

    policy_dir: Path
    max_context_tokens: int
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    max_samples: int = 64
    kv_cache_gib: int = 1
    gpu_memory_fraction: float = 0.1
    threads: str = "auto"
    adapter_rank: int = 0
    """Largest rank of adapters that it can be given. 0: none; prompts may be embeddings only then."""


@dataclass(frozen=True)
class EmbeddingPrompt:
    """A prompt as vectors in the policy's embedding space, shape [num_prompt_tokens, hidden]."""

    embeddings: "torch.Tensor"
    version: PolicyVersion | None = None
    """Of the encoder that wrote it. None: every version is asked the same."""

    def is_for(self, version: PolicyVersion) -> bool:
        """Whether a language model of this version would have been asked so."""
        return self.version in (None, version)

    @property
    def num_tokens(self) -> int:
        return int(self.embeddings.shape[0])

    @property
    def digest(self) -> None:
        """Who knows the encoder writes it again."""
        return None


@dataclass(frozen=True)
class TokenPrompt:
    """A prompt as token ids."""

    token_ids: tuple[int, ...]

    def is_for(self, version: PolicyVersion) -> bool:
        """A text is the same for every version."""
        return True

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def digest(self) -> Digest:
        """Of its ids."""
        return digest_of(self.token_ids)


EnginePrompt = EmbeddingPrompt | TokenPrompt


@dataclass(frozen=True)
class Sample:
    """One completion, with what a trainer needs to know of it."""

    text: str
    token_ids: tuple[int, ...]
    """The end token included, where it was reached."""
    logprobs: tuple[float, ...]
    """Natural log-probability of each token under the distribution it was sampled from: after temperature and min-p."""
    versions: tuple[int, ...]
    """Policy version that each token was sampled under, never descending."""


class Engine:
    """A live vLLM engine in processes of its own, with the shipped weights at first.

    Made of what `load_engine` returns; all methods belong to one event loop.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._publishing = asyncio.Lock()
        self._death: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.version = 0
        """Version of the weights that the next token is sampled under; with adapters, the next sample."""
        self.paused_s = 0.0
        """That the last swap took, between two tokens."""
        self.first_token_at: float | None = None
        """By the monotonic clock, of the first token under `version`; None: there was none yet."""
        self.takes_adapters = llm.vllm_config.lora_config is not None
        self._adapter: Any = None
        """As vLLM is told of it; None: the model as shipped."""
        self._num_adapters = 0
        self._samples_under: Counter[int] = Counter()
        """Samples in the engine by the number of their adapter."""
        self._under_way: dict[str, _PartialSample] = {}
        """By the name of vLLM's request."""
        config = llm.model_config
        self.hidden_size = int(config.get_hidden_size())
        self.vocabulary_size = int(config.get_vocab_size())
        self.max_context_tokens = int(config.max_model_len)
        self.dtype: torch.dtype = config.dtype

    @property
    def is_alive(self) -> bool:
        return not self._death.done() and not self._llm.errored

    async def sample(
        self,
        prompt: EnginePrompt,
        *,
        temperature: float,
        max_tokens: int,
        min_p: float = 0.0,
    ) -> Sample:
        """Sample one completion. `min_p`: no token that is less likely, at the temperature, than this share of the
        likeliest.

        Raises InvalidPrompt before the engine sees a bad prompt, EngineFailed if it dies.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        request = self._checked(prompt, max_tokens)
        # vLLM tells of each token by itself only where the first one's time is wanted: that takes this process most
        # of its time, and it has one for all samples.
        is_told = self.first_token_at is None
        params = SamplingParams(
            temperature=temperature,
            top_p=1.0,
            top_k=0,
            min_p=min_p,
            max_tokens=max_tokens,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA if is_told else RequestOutputKind.FINAL_ONLY,
        )
        return await self._while_alive(self._sampled(self._llm, request, params), "the engine died while sampling")

    async def _while_alive(self, work: Coroutine[Any, Any, Result], or_else: str) -> Result:
        """Raises EngineFailed where the engine dies or is closed: vLLM wakes nobody who waits for a killed process."""
        from vllm.v1.engine.exceptions import EngineDeadError

        if self._death.done():
            work.close()
            raise EngineFailed(or_else)
        working = asyncio.ensure_future(work)
        try:
            await asyncio.wait({working, self._death}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise EngineFailed(or_else)
            return working.result()
        except EngineDeadError as error:
            raise EngineFailed(or_else) from error
        finally:
            working.cancel()

    async def _sampled(self, llm: Any, request: dict[str, Any], params: Any) -> Sample:
        name, partial, adapter, begun_under = uuid.uuid4().hex, _PartialSample(), self._adapter, self.version
        number = 0 if adapter is None else adapter.lora_int_id
        self._samples_under[number] += 1
        self._under_way[name] = partial
        try:
            # Leaving the stream is what tells vLLM to sample no further.
            generated = llm.generate(request, params, name, lora_request=adapter)
            async with aclosing(generated) as outputs:
                async for output in outputs:
                    partial.add(output.outputs[0])
                    version = begun_under if self.takes_adapters else self.version
                    if self.first_token_at is None and version == self.version and partial.is_beyond_the_swap:
                        self.first_token_at = time.monotonic()
        finally:
            del self._under_way[name]
            self._samples_under[number] -= 1
            await self._forget(llm, number)
        return partial.sample(llm.get_tokenizer(), begun_under if self.takes_adapters else self.version)

    async def publish(self, weights: Sequence[Path], version: int, swap_encoder: Callable[[], None]) -> None:
        """Serve new weights without losing a request: those in flight keep their tokens and go on under the new ones.

        `weights`: the safetensors files that together hold the language model. `swap_encoder` runs while generation
        stands still. Raises EngineFailed where the weights do not load, or the engine dies.
        """
        async with self._publishing:
            swapping = self._swap(self._llm, [str(path) for path in weights], version, swap_encoder)
            await self._while_alive(swapping, f"the engine died while version {version} was loaded")

    async def _swap(self, llm: Any, weights: list[str], version: int, swap_encoder: Callable[[], None]) -> None:
        began = time.monotonic()
        await llm.pause_generation(mode="keep", clear_cache=True)
        try:
            await llm.collective_rpc("load_policy", timeout=LOAD_TIMEOUT_S, args=(weights,))
        except Exception as error:
            # The weights are half replaced: no step may run on them. What is in flight sees the engine die.
            end_engine_processes()
            raise EngineFailed(f"version {version} did not load") from error
        swap_encoder()
        await self._note_swap(llm)
        self.version, self.first_token_at = version, None
        await llm.resume_generation()
        self.paused_s = time.monotonic() - began

    async def _note_swap(self, llm: Any) -> None:
        """In each sample under way, how many of its tokens are of the old weights. The reply to the load came after
        them all, but vLLM counts them by and by."""
        before, counted = None, _tokens_of(llm)
        while counted != before:
            await asyncio.sleep(COUNTED_S)
            before, counted = counted, _tokens_of(llm)
        for name, partial in self._under_way.items():
            partial.note_swap(self.version, counted.get(name))

    async def adopt(self, adapter: Path | None, version: int) -> None:
        """Samples from now on are taken with an adapter, or from the model as shipped; those in the engine end as they
        began, and then their adapter goes.

        Raises RefusedAdapter where vLLM does not take it, EngineFailed where the engine dies.
        """
        async with self._publishing:
            before, told = self._adapter, None if adapter is None else self._told_of(adapter)
            if told is not None:
                adding = self._added(self._llm, told)
                await self._while_alive(adding, f"the engine died while the adapter of version {version} was loaded")
            self._adapter, self.version, self.first_token_at = told, version, None
            if before is not None:
                forgetting = self._forget(self._llm, before.lora_int_id)
                await self._while_alive(forgetting, "the engine died while an adapter was removed")

    def _told_of(self, adapter: Path) -> Any:
        """Under a name and a number that no adapter had before: what vLLM kept of others' prompts is not theirs."""
        from vllm.lora.request import LoRARequest

        self._num_adapters += 1
        return LoRARequest(f"{adapter.name}-{self._num_adapters}", self._num_adapters, str(adapter.resolve()))

    async def _added(self, llm: Any, told: Any) -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            await llm.add_lora(told)
        except EngineDeadError:
            raise
        except Exception as error:  # vLLM has no class of its own for what its worker could not load.
            raise RefusedAdapter(f"{Path(told.lora_path).name} does not load: {error}") from error

    async def _forget(self, llm: Any, number: int) -> None:
        """An adapter that nothing is sampled with any more."""
        newest = 0 if self._adapter is None else self._adapter.lora_int_id
        if number not in (0, newest) and not self._samples_under[number] and not self._death.done():
            del self._samples_under[number]
            await llm.remove_lora(number)

    async def close(self) -> None:
        """End the engine's processes; what is being sampled fails with EngineFailed."""
        if not self._death.done():
            self._death.set_result(None)
        llm, self._llm = self._llm, None
        await asyncio.to_thread(llm.shutdown)

    def _checked(self, prompt: EnginePrompt, max_tokens: int) -> dict[str, Any]:
        match prompt:
            case EmbeddingPrompt(embeddings=embeddings):
                checked = self._embeddings(embeddings)
                length = int(checked.shape[0])
                request: dict[str, Any] = {"prompt_embeds": checked}
            case TokenPrompt(token_ids=token_ids):
                if not all(0 <= token < self.vocabulary_size for token in token_ids):
                    raise InvalidPrompt(f"token ids must be from 0 to {self.vocabulary_size - 1}")
                length = len(token_ids)
                request = {"prompt_token_ids": list(token_ids)}
        if not 1 <= length <= self.max_context_tokens - max_tokens:
            raise InvalidPrompt(
                f"a prompt of {length} tokens and {max_tokens} more do not fit a context of {self.max_context_tokens}"
            )
        return request

    def _embeddings(self, embeddings: "torch.Tensor") -> "torch.Tensor":
        if embeddings.ndim != 2 or embeddings.shape[1] != self.hidden_size:
            raise InvalidPrompt(f"embeddings of shape {list(embeddings.shape)}: expected [tokens, {self.hidden_size}]")
        if not embeddings.is_floating_point():
            raise InvalidPrompt(f"embeddings of {embeddings.dtype}: expected a floating-point type")
        converted = embeddings.detach().to("cpu", self.dtype)
        if not bool(converted.isfinite().all()):
            raise InvalidPrompt(f"embeddings must be finite in {self.dtype}")
        return converted


class _PartialSample:
    """One completion that is under way, and which of its tokens came before weights were swapped."""

    def __init__(self) -> None:
        self._token_ids: list[int] = []
        self._logprobs: list[float] = []
        self._swaps: list[tuple[int, PolicyVersion]] = []
        """How many tokens there were, and the version that sampled those behind the swap before."""

    def add(self, piece: Any) -> None:
        """All of it, or what came since the piece before.

        A piece that ends a sample without a token of its own comes with the log-probabilities of all before it
        (vLLM 0.26 takes the last 0 of them), alone or merged with the piece before.
        """
        if not (count := len(piece.token_ids)):
            return
        logprobs = piece.logprobs.logprobs[-count:]
        if len(logprobs) != count:
            raise ValueError(f"{len(logprobs)} log-probabilities of {count} tokens")
        self._token_ids += piece.token_ids
        self._logprobs += logprobs

    def note_swap(self, version: PolicyVersion, counted: int | None) -> None:
        """Weights of another version than this are next. `counted`: tokens so far; None: vLLM knows no such sample, it
        has ended or not begun."""
        ended = sys.maxsize if self._token_ids else 0
        self._swaps.append((ended if counted is None else counted, version))

    @property
    def is_beyond_the_swap(self) -> bool:
        """Whether there is a token under the newest weights."""
        return len(self._token_ids) > (self._swaps[-1][0] if self._swaps else 0)

    def sample(self, tokenizer: Any, version: PolicyVersion) -> Sample:
        """`version`: of the newest weights."""
        count, versions = len(self._token_ids), list[PolicyVersion]()
        for end, before in [*self._swaps, (count, version)]:
            versions += [before] * (min(end, count) - len(versions))
        text = tokenizer.decode(self._token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return Sample(text, tuple(self._token_ids), tuple(self._logprobs), tuple(versions))


def _tokens_of(llm: Any) -> dict[str, int]:
    """Of each request that vLLM has not ended, by the name that it was given: what was sampled so far."""
    states = llm.output_processor.request_states.values()
    return {state.external_req_id: state.detokenizer.num_output_tokens() for state in states}


def load_engine(options: EngineOptions) -> Any:
    """Start vLLM on a policy folder; takes tens of seconds and blocks. Hand the result to `Engine`.

    The engine's process is spawned, not forked: a fork of a process that has run torch hangs.
    """
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    os.environ["SPARSESMITH_GENERATOR_PID"] = str(os.getpid())
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_HOST_IP", "127.0.0.1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(options.kv_cache_gib))
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", options.threads)
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_USE_FLASHINFER_SAMPLER", "0")
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    on_cpu = bool(current_platform.is_cpu())
    automatic: Literal["float32", "bfloat16"] = "float32" if on_cpu else "bfloat16"
    return AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=str(options.policy_dir),
            dtype=automatic if options.dtype == "auto" else options.dtype,
            max_model_len=options.max_context_tokens,
            max_num_seqs=options.max_samples,
            gpu_memory_utilization=options.gpu_memory_fraction,
            enforce_eager=on_cpu,
            enable_prompt_embeds=not options.adapter_rank,
            logprobs_mode="processed_logprobs",
            generation_config="vllm",
            worker_extension_cls=EXTENSION,
            disable_log_stats=True,
            **_room_for_adapters(options.adapter_rank),
        )
    )


def _room_for_adapters(rank: int) -> dict[str, Any]:
    """Arguments of vLLM."""
    if not rank:
        return {}
    room = next(each for each in RANKS if each >= rank)
    places = {"max_loras": ADAPTERS_AT_ONCE, "max_cpu_loras": ADAPTERS_AT_ONCE}
    return {"enable_lora": True, "max_lora_rank": room, **places}


def end_engine_processes() -> None:
    """End the engine's processes at once: one that is loading raises in its thread, one that serves dies."""
    for child in multiprocessing.active_children():
        child.terminate()
