"""The parts of a running generator, put together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from services.generator.answers import Answers
from services.generator.channels import Channels
from services.generator.fleet import evaluator_views, gpu_views, trainer_views
from services.generator.gpus import Gpus
from services.generator.jobs.arrivals import Arrivals
from services.generator.jobs.jobs import JobLimits, Jobs
from services.generator.jobs.ledger import Ledger
from services.generator.listings import MAX_LISTINGS, Listings
from services.generator.metrics import Gauges, Metrics, SharedGauges, WorkerMetrics
from services.generator.policy.adapters import Adapters
from services.generator.policy.canary import Canary, CanaryOptions
from services.generator.policy.comparison import GapLimits
from services.generator.policy.engine import EngineOptions
from services.generator.policy.engine_host import EngineHost
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.probe_set import probe_set, probe_set_id
from services.generator.policy.publication import Publication, WholeWeights
from services.generator.policy.sampling import PolicySampler, SamplingOptions, Warmth
from services.generator.policy.value_filter import value_filter
from services.generator.policy.watch import PolicyWatch
from services.generator.search import Sources
from services.generator.search.evaluations import QueuedEvaluations
from services.generator.search.grading import GradingLimits
from services.generator.search.instant import InstantTools
from services.generator.search.kernel_cache import TunedKernelCache
from services.generator.search.trials import Trials
from services.generator.settings import GeneratorSettings
from services.generator.tools import Tools
from services.generator.views import MatrixViews
from services.generator.writing import Writers
from services.generator.writing.endpoint import Endpoint, EndpointOptions
from services.generator.writing.model import Model, ModelOptions
from services.generator.writing.policy import Editor
from services.generator.writing.text import ChatPrompts, TextModel
from sparsesmith.artifacts.signing import kept_signer
from sparsesmith.errors import NotFound, Unavailable
from sparsesmith.prompts.brief import Gpu
from sparsesmith.transport.traces import Traces, traces_to
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.api import Fleet, KernelReport, PolicyStatus, Readiness, SigningKey
from sparsesmith_proto.message import PolicyVersion

log = logging.getLogger(__name__)

Part = Callable[[], Coroutine[Any, Any, None]]
"""Of the service, in the background."""
PART_RESTART_S = 5.0
NUM_THREADS = 32
"""For calls of the store, which wait for the network, beside a few matrices that are parsed."""


class Service:
    """Made in `__main__`, handed to the application; `running` is its life."""

    def __init__(self, settings: GeneratorSettings, channels: Channels, traces: Traces | None = None) -> None:
        """`traces`: in the place of what the settings say."""
        self.settings = settings
        self.channels = channels
        self.ledger = Ledger(channels.jobs, channels.patterns)
        self.views = MatrixViews(self.ledger)
        self.gpus = Gpus(channels.gpus)
        self.metrics = Metrics()
        self.signer = None if settings.signing_dir is None else kept_signer(settings.signing_dir)
        self.trials = Trials(channels.candidates)
        num_waits = settings.max_running_jobs * settings.batches_in_flight + len(probe_set()) + MAX_LISTINGS
        self.evaluations = QueuedEvaluations(channels.evaluations, num_waits, self.metrics.graded)
        self.listings = Listings(self.ledger, self.trials, self.evaluations, self.gpus)
        self.folder = policy_folder(settings)
        self.sampler = None if self.folder is None else policy_sampler(self.folder, settings)
        self.watch = None
        if self.folder is not None and self.sampler is not None:
            self.watch = policy_watch(self.folder, self.sampler, self.evaluations, channels, settings)
        self.endpoint = model_endpoint(settings)
        self.writers = Writers(self._models(), model_options(settings), self._editor())
        answers = Answers(self._tools(), self._policy_version, self.metrics)
        limits = JobLimits(settings.max_waiting_jobs, settings.max_running_jobs)
        self.jobs = Jobs(self.ledger, answers, limits, traces or traces_to(settings.traces_endpoint, "sparsesmith"))
        self.arrivals = Arrivals(self.jobs, self.ledger, self.gpus)
        for collector in (
            Gauges(self.jobs, self.sampler, self.watch),
            SharedGauges(channels),
            WorkerMetrics(channels.metrics),
        ):
            self.metrics.registry.register(collector)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Engine, policy watch and jobs in the background; jobs in progress at the end stay accepted."""
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(NUM_THREADS, thread_name_prefix="blocking"))
        parts: dict[str, Part] = {"the job queue": self.jobs.run}
        if self.sampler is not None and self.watch is not None:
            host, watch = self.sampler.host, self.watch
            parts["the engine's host"] = partial(host.run, watch.prepare)
            parts["the policy watch"] = partial(watch.run, host)
        tasks = [asyncio.create_task(kept_running(name, part)) for name, part in parts.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.evaluations.close()
            if self.endpoint is not None:
                await self.endpoint.close()

    async def readiness(self) -> Readiness:
        """Without its engine the service is ready for all that needs no policy, and says so.

        Raises Unavailable where nothing works.
        """
        if not await asyncio.to_thread(self.channels.is_answering):
            raise Unavailable("Redis does not answer", field="redis_url")
        if self.sampler is None or self.sampler.host.engine is not None:
            return Readiness()
        state = "could not be loaded" if self.sampler.is_broken else "is loading"
        return Readiness(degraded=f"the engine {state}: search=families works, search=auto without samples")

    async def fleet(self) -> Fleet:
        """Raises Unavailable."""
        return await asyncio.to_thread(self._fleet)

    def policy_status(self) -> PolicyStatus:
        """Raises NotFound where the service runs without a policy."""
        if self.folder is None or self.sampler is None or self.watch is None:
            raise NotFound("this service runs without a policy", field="policy_dir", value=self.settings.policy_dir)
        return PolicyStatus(
            model=self.folder.name,
            version=self.watch.version,
            num_parameters=self.folder.num_parameters,
            encoder=self.sampler.writer.encoder,
            announcement=self.watch.announcement,
            under_probe=self.watch.under_probe,
            verdicts=self.watch.standing.verdicts,
            taken=self.watch.taken,
        )

    def signing_key(self) -> SigningKey:
        """What reports are verified with. Raises NotFound where the service signs none."""
        if self.signer is None:
            raise NotFound("this service signs no reports", field="signing_dir")
        return self.signer.public

    def signed(self, report: KernelReport) -> KernelReport:
        """As it is handed out as a file."""
        return report if self.signer is None else self.signer.signed(report)

    async def roll_back_policy(self, version: PolicyVersion | None) -> PolicyStatus:
        """An operator's wish; the engine follows within `policy_poll_s`. Raises NotFound, Conflict, Unavailable."""
        status = self.policy_status()
        if self.watch is None:
            return status
        standing = await self.watch.roll_back(version)
        return status.model_copy(
            update={
                "version": standing.serving_version,
                "announcement": standing.serving,
                "verdicts": standing.verdicts,
            }
        )

    def _editor(self) -> Editor | None:
        if self.sampler is None or self.folder is None:
            return None
        return Editor(self.sampler, self.folder.name, self.settings.samples_in_flight)

    def _models(self) -> list[Model]:
        """That `refine` may ask."""
        models: list[Model] = [] if self.endpoint is None else [self.endpoint]
        sampler, folder = self.sampler, self.folder
        if sampler is not None and folder is not None and isinstance(sampler.writer, ChatPrompts):
            models.append(TextModel(sampler, sampler.writer, folder.name, self.settings.samples_in_flight))
        return models

    def _tools(self) -> Tools:
        settings, models = self.settings, CostModels(self.settings.cost_model_dir)
        return Tools(
            sources=Sources(
                self.sampler,
                settings.batch_candidates,
                settings.samples_in_flight,
                models,
                settings.mutates,
                value_filter(settings.value_dir, settings.value_oversampling),
                self.writers,
                settings.edits,
                settings.polishes,
            ),
            evaluations=self.evaluations,
            limits=GradingLimits(settings.batches_in_flight, settings.first_grade_patience_s),
            cache=TunedKernelCache(self.channels.tuned_kernels, settings.cache_ttl_s, self.gpus.names),
            trials=self.trials,
            gpus=self.gpus,
            instant=InstantTools(self.evaluations, self._devices),
        )

    async def _devices(self) -> list[str]:
        """Names of the devices of evaluators that told of themselves lately; none where the store does not answer."""
        try:
            texts = await asyncio.to_thread(self.channels.metrics.latest)
        except Unavailable:
            return []
        return [view.device for view in evaluator_views(texts)]

    def _fleet(self) -> Fleet:
        texts = self.channels.metrics.latest()
        return Fleet(
            jobs_waiting=self.jobs.num_waiting,
            jobs_running=self.jobs.num_running,
            evaluations_waiting=self.channels.queue_depth(),
            stored_matrix_bytes=self.channels.patterns.num_bytes(),
            history_days=self.settings.history_days,
            evaluators=evaluator_views(texts),
            gpus=gpu_views(self.channels.gpus.living(), self.channels.queue_depth),
            trainers=trainer_views(texts),
            policy=None if self.folder is None else self.policy_status(),
        )

    def _policy_version(self) -> int | None:
        """Of the engine that serves now."""
        engine = None if self.sampler is None else self.sampler.host.engine
        return None if engine is None or self.watch is None else self.watch.version


async def kept_running(name: str, part: Part, pause_s: float = PART_RESTART_S) -> None:
    """A part of the service, until cancelled; one that fails starts again."""
    while True:
        try:
            await part()
        except Exception:
            # The outermost handler of a part: without it the service would go on without the part, and nobody know.
            log.exception("%s failed; it starts again in %g s", name, pause_s)
        await asyncio.sleep(pause_s)


def policy_folder(settings: GeneratorSettings) -> PolicyFolder | None:
    """The configured policy; None, and a word in the log, where there is none."""
    folder = None if settings.policy_dir is None else PolicyFolder(settings.policy_dir, settings.policy_kind)
    if folder is None or folder.exists:
        return folder
    log.warning("no policy at %s: the service runs on kernel families alone", folder.path)
    return None


def model_endpoint(settings: GeneratorSettings) -> Endpoint | None:
    """Raises InvalidOption where the file of its key holds none."""
    if not settings.endpoint_url:
        return None
    options = EndpointOptions(
        url=settings.endpoint_url,
        model=settings.endpoint_model,
        key_file=settings.endpoint_key_file,
        timeout_s=settings.endpoint_timeout_s,
        silence_s=settings.endpoint_silence_s,
        retries=settings.endpoint_retries,
        first_pause_s=settings.endpoint_first_pause_s,
        max_tokens=settings.endpoint_max_tokens,
        temperature=settings.endpoint_temperature,
        at_once=settings.endpoint_at_once,
    )
    return Endpoint(options)


def model_options(settings: GeneratorSettings) -> ModelOptions:
    gpu = Gpu(settings.architecture, num_sms=settings.num_sms, copy_bandwidth_gbs=settings.copy_bandwidth_gbs)
    return ModelOptions(gpu, settings.refine_history_characters)


def policy_watch(
    folder: PolicyFolder,
    sampler: PolicySampler,
    evaluations: QueuedEvaluations,
    channels: Channels,
    settings: GeneratorSettings,
) -> PolicyWatch:
    options = CanaryOptions(
        samples=settings.canary_samples,
        hold_s=settings.canary_hold_s,
        verdict_s=settings.canary_verdict_s,
        retry_s=settings.canary_retry_s,
        gap=GapLimits(settings.max_logprob_gap, settings.max_logprob_gap_program),
    )
    canary = Canary(
        probe_set_id(folder.weight_files, settings.temperature),
        sampler.writer,
        sampler.options,
        evaluations,
        channels.patterns,
        channels.policy,
        options,
    )
    rank = adapter_rank(folder, settings)
    publication: Publication = (
        Adapters(settings.exchange_dir, folder, rank)
        if rank
        else WholeWeights(settings.exchange_dir, folder.weight_files, folder.shapes, sampler.writer)
    )
    return PolicyWatch(channels.policy, publication, sampler.gate, canary, settings.policy_poll_s)


def adapter_rank(folder: PolicyFolder, settings: GeneratorSettings) -> int:
    """Of adapters that the engine is given; 0: whole weights."""
    return settings.adapter_rank if folder.takes_adapters else 0


def policy_sampler(folder: PolicyFolder, settings: GeneratorSettings) -> PolicySampler:
    options = EngineOptions(
        policy_dir=folder.language_model_dir(),
        max_context_tokens=min(settings.max_prompt_tokens + settings.max_program_tokens, folder.max_positions),
        dtype=settings.engine_dtype,
        max_samples=settings.engine_max_samples,
        kv_cache_gib=settings.engine_kv_cache_gib,
        gpu_memory_fraction=settings.engine_gpu_memory_fraction,
        threads=settings.engine_threads,
        adapter_rank=adapter_rank(folder, settings),
    )
    sampling = SamplingOptions(
        settings.architecture,
        settings.temperature,
        settings.max_program_tokens,
        settings.num_sms,
        settings.copy_bandwidth_gbs,
        settings.exploring_share,
        Warmth(settings.exploring_temperature, settings.exploring_min_p),
    )
    return PolicySampler(EngineHost(options, settings.engine_restart_s), folder.prompt_writer(), sampling)
