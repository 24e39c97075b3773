"""A language model that is asked in words learns by adapters: engine, evaluator and trainer as processes.

The trainer is killed twice. The model is tiny and knows three programs that are right and two that are not.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from transformers import AutoModelForCausalLM

from services.trainer.course.judging import FRESH
from sparsesmith.client import Client
from sparsesmith.policy.chat import ChatTokenizer, digest_of
from sparsesmith.prompts.dialogue import Line
from sparsesmith.prompts.text import text_prompt
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import STREAM
from sparsesmith_proto.kernel import Sampled
from sparsesmith_proto.reward import RewardRecord
from tests.generator.processes import ServiceProcess, free_port
from tests.generator.test_killed_canary import InBackground
from tests.slow import of_minutes
from tests.trainer.toy_text_policy import lessons, write_text_policy

peft = pytest.importorskip("peft")
pytestmark = [pytest.mark.stack, pytest.mark.timeout(900), of_minutes]

LIMIT_S = 400.0
CLOSE = 1e-3
"""Nats between the engine's log-probabilities and those of Hugging Face's model with peft's adapter."""
GROUP = 16

Found = TypeVar("Found")


class Works:
    """Evaluator, generator and trainer; the last one can be killed and started again."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._folder = folder
        self._redis_url = redis_url
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.model = write_text_policy(folder / "model")
        self.exchange = folder / "exchange"
        self.exchange.mkdir()
        self.channel = PolicyChannel(connect(redis_url))
        self.evaluator = self._start("evaluator", DEVICE="interpreter", COMPILE_WORKERS="1")
        self.generator = self._start(
            "generator",
            PORT=str(port),
            POLICY_DIR=str(self.model),
            EXCHANGE_DIR=str(self.exchange),
            POLICY_POLL_S="0.1",
            MAX_PROMPT_TOKENS="1200",
            MAX_PROGRAM_TOKENS="90",
            ENGINE_MAX_SAMPLES="16",
            CANARY_SAMPLES="8",
            CANARY_VERDICT_S="600",
            CANARY_RETRY_S="1",
        )
        self.trainer = self.start_trainer()

    def start_trainer(self) -> ServiceProcess:
        self.trainer = self._start(
            "trainer",
            POLICY_DIR=str(self.model),
            EXCHANGE_DIR=str(self.exchange),
            STATE_DIR=str(self._folder / "state"),
            BATCH_RECORDS=str(2 * GROUP),
            MIN_RECORDS=str(2 * GROUP),
            MINIBATCH_RECORDS=str(GROUP),
            MICRO_BATCH_TOKENS="8192",
            MAX_TEXT_TOKENS="2048",
            ADAPTER_RATE="0.003",
            CRITIC_GATE="0",
            DEVICE="cpu",
            NICENESS="0",
        )
        return self.trainer

    def kill_trainer(self) -> None:
        self.trainer.kill()
        self.start_trainer()

    def _start(self, name: str, **settings: str) -> ServiceProcess:
        environment = {f"SPARSESMITH_{name.upper()}_{key}": value for key, value in settings.items()}
        environment |= {"SPARSESMITH_REDIS_URL": self._redis_url, "SPARSESMITH_ADAPTER_RANK": "8"}
        return ServiceProcess(f"services.{name}", self._folder / f"{name}.log", **environment)

    def end(self) -> None:
        for process in (self.generator, self.trainer, self.evaluator):
            process.end()

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def updates(self) -> list[dict[str, float]]:
        journal = self._folder / "state" / "updates.jsonl"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    def used(self) -> list[str]:
        """Ids of records that the newest checkpoint has learned from."""
        checkpoints = (self._folder / "state" / "checkpoints").glob("checkpoint-*.pt")
        newest = max(checkpoints, key=lambda path: path.stat().st_mtime)
        return list(torch.load(newest, weights_only=True)["used"])

    def post_lessons(self) -> None:
        """All at once, a group each."""
        with Client(self.url, FRESH) as client:
            jobs = [client.submit(f"{each.name}.npz", each.file(), each.options(GROUP, 120)) for each in lessons()]
            for job in jobs:
                client.wait(job.job_id)

    def logprobs(self, version: int, record: RewardRecord) -> torch.Tensor:
        """What Hugging Face's model and peft say of a sample, under a published version."""
        model = AutoModelForCausalLM.from_pretrained(self.model, dtype=torch.float32)
        if version:
            model = peft.PeftModel.from_pretrained(model, self.exchange / f"policy-{version}")
        sampled = record.candidate.origin
        assert isinstance(sampled, Sampled)
        pattern = next(each.pattern for each in lessons() if each.pattern.digest == record.workload.pattern)
        words = text_prompt(pattern, record.workload, sampled.prompt)
        prompt = ChatTokenizer(self.model).token_ids((Line("user", words),))
        assert sampled.asked == digest_of(prompt)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *sampled.token_ids]])).logits[0, len(prompt) - 1 : -1]
        return torch.log_softmax(logits, -1).gather(-1, torch.tensor(sampled.token_ids)[:, None])[:, 0]


class Witness:
    """Every sample that was graded: evaluators leave them to the trainer, who takes them away."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection
        self._last = "-"
        self.seen: list[RewardRecord] = []

    def look(self) -> None:
        for entry, fields in self._connection.xrange(STREAM, self._last, "+"):
            self._last = f"({entry.decode()}"
            self.seen.append(RewardRecord.model_validate_json(fields[b"record"]))
        time.sleep(0.02)

    def of_version(self, version: int) -> list[RewardRecord]:
        """Whole samples."""
        origins = [(each, each.candidate.origin) for each in self.seen]
        return [
            record
            for record, origin in origins
            if isinstance(origin, Sampled) and origin.first_version == origin.last_version == version
        ]


def found(look: Callable[[], Found | None], what: str) -> Found:
    end = time.monotonic() + LIMIT_S
    while not (seen := look()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
    return seen


@contextmanager
def background(work: Callable[[], None]) -> Iterator[None]:
    running = InBackground(work)
    try:
        yield
    finally:
        running.stop()


@pytest.fixture
def works(tmp_path: Path, redis_url: str) -> Iterator[Works]:
    running = Works(tmp_path, redis_url)
    try:
        yield running
    finally:
        running.end()


def test_samples_become_an_adapter_that_serves_after_its_canary_though_the_trainer_is_killed_on_the_way(
    works: Works, redis_url: str
) -> None:
    witness = Witness(connect(redis_url))
    found(lambda: "the engine serves version 0" in works.log("generator"), "an engine")
    with background(witness.look):
        posting = InBackground(works.post_lessons)
        found(lambda: len(witness.seen) >= GROUP, "half of the records")
        works.kill_trainer()
        found(lambda: "is under probe" in works.log("generator"), "an adapter under probe")
        works.kill_trainer()
        verdict = found(lambda: works.channel.standing().verdict(1), "a verdict, with the trainer back")
        assert verdict.decision == "accepted", verdict
        assert verdict.announcement.weights == "policy-1"
        assert verdict.scores is not None and (verdict.scores.logprob_gap or 0) < CLOSE
        served = found(lambda: witness.of_version(1), "samples of the adapter")
        posting.stop()

        first = works.updates()[0]
        assert (first["version"], first["records"]) == (1, 2 * GROUP)
        assert first["program_kl"] > 0
        assert abs(first["kl_reference"]) < 1e-6, "an update begins at the reference"
        assert all(entry["skipped"] == {} and entry["records"] == 2 * GROUP for entry in works.updates())
        for version, records in ((0, witness.of_version(0)), (1, served)):
            for record in records[:3]:
                origin = record.candidate.origin
                assert isinstance(origin, Sampled)
                said = works.logprobs(version, record)
                torch.testing.assert_close(torch.tensor(origin.logprobs), said, rtol=0, atol=CLOSE)
        apart = torch.tensor(served[0].candidate.origin.logprobs) - works.logprobs(0, served[0])  # type: ignore[union-attr]
        assert float(apart.abs().max()) > 10 * CLOSE, "the adapter cannot be told from the model"

        told = len(works.log("generator"))
        works.channel.roll_back(0, "a test", "2026-11-23T00:00:00Z")
        found(lambda: "policy version 0 serves" in works.log("generator")[told:], "the model as shipped, again")
    used = works.used()
    assert len(used) == len(set(used)) and len(used) % (2 * GROUP) == 0, "none is learned from twice"
    assert {each.record_id for each in witness.seen[: 2 * GROUP]} <= set(used), "none is lost"
