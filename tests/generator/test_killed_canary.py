"""Generator and trainer are killed in the middle of a canary; all of them are real processes, the policy is tiny."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import httpx
import pytest
import torch
from safetensors.torch import load_file

from sparsesmith.policy.checkpoint import Policy
from sparsesmith.policy.description import ENCODER_PREFIX
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith.transport.connection import Redis, connect
from sparsesmith.transport.job_store import JobStore
from sparsesmith.transport.pattern_store import PatternStore
from sparsesmith.transport.policy_channel import PolicyChannel
from sparsesmith.transport.stream import STREAM, RewardStream
from sparsesmith_proto.kernel import Sampled
from sparsesmith_proto.policy import PolicyStanding
from sparsesmith_proto.reward import RewardRecord
from tests.generator.orders import make_pattern
from tests.generator.processes import ServiceProcess, free_port, wait_until
from tests.generator.tiny_policy import make_policy, reference_logprobs, write_policy
from tests.slow import of_minutes
from tests.trainer.records import PATTERN, make_record, make_sampled

pytestmark = [pytest.mark.stack, pytest.mark.timeout(3600), of_minutes]

CLOSE = 1e-3
"""Nats between the engine's log-probabilities and those of Hugging Face's model with the same weights."""
LIMIT_S = 900.0
USER_PATTERN = make_pattern(seed=5)
HOLDS = re.compile(r"the engine holds version (\d+) for its probe")
BACK = "users' samples waited"
SERVES = re.compile(r"the engine serves version (\d+)")

Found = TypeVar("Found")


class Works:
    """Evaluator, generator and trainer; the last two can be killed and started again."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        self._folder = folder
        self._redis_url = redis_url
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.model = write_policy(folder / "model", make_policy())
        self.exchange = folder / "exchange"
        self.exchange.mkdir()
        self.channel = PolicyChannel(connect(redis_url))
        self.evaluator = self._start("evaluator", DEVICE="interpreter", COMPILE_WORKERS="1")
        self.generator = self.start_generator()
        self.trainer = self.start_trainer()

    def start_generator(self) -> ServiceProcess:
        self.generator = self._start(
            "generator",
            PORT=str(self._port),
            POLICY_DIR=str(self.model),
            EXCHANGE_DIR=str(self.exchange),
            POLICY_POLL_S="0.1",
            MAX_PROGRAM_TOKENS="60",
            ENGINE_MAX_SAMPLES="16",
            CANARY_SAMPLES="128",
            CANARY_VERDICT_S="600",
            CANARY_RETRY_S="1",
        )
        return self.generator

    def start_trainer(self) -> ServiceProcess:
        """Its steps are so large that no two versions are alike."""
        self.trainer = self._start(
            "trainer",
            POLICY_DIR=str(self.model),
            EXCHANGE_DIR=str(self.exchange),
            STATE_DIR=str(self._folder / "state"),
            BATCH_RECORDS="16",
            MAX_WAIT_S="1",
            KEEP_PUBLISHED="100",
            MATRIX_RATE="0.003",
            OTHER_RATE="0.003",
            PROGRAM_KL_LIMIT="100",
            CRITIC_GATE="0",
            DEVICE="cpu",
            NICENESS="0",
        )
        return self.trainer

    def _start(self, name: str, **settings: str) -> ServiceProcess:
        environment = {f"SPARSESMITH_{name.upper()}_{key}": value for key, value in settings.items()}
        log = self._folder / f"{name}.log"
        return ServiceProcess(f"services.{name}", log, SPARSESMITH_REDIS_URL=self._redis_url, **environment)

    def end(self) -> None:
        for process in (self.generator, self.trainer, self.evaluator):
            process.end()

    def log(self) -> str:
        """The generator's, of all its lives."""
        return self.generator.log.read_text(errors="replace")

    def held(self) -> int | None:
        """The version under probe that the engine holds now."""
        log = self.log()
        told = [each for each in HOLDS.finditer(log) if each.start() > log.rfind(BACK)]
        return (int(told[-1][1]) or None) if told else None

    def num_updates(self) -> int:
        journal = self._folder / "state" / "updates.jsonl"
        return len(journal.read_text().splitlines()) if journal.exists() else 0

    def weights(self, version: int) -> Policy:
        """Of a published version."""
        policy = make_policy(version=version)
        if version:
            tensors = load_file(self.exchange / f"policy-{version}.safetensors")
            own = {name: value.float() for name, value in tensors.items() if not name.startswith(ENCODER_PREFIX)}
            policy.model.load_state_dict(own, strict=False)
        return policy

    def distance(self, version: int, samples: list[Sampled]) -> float:
        """Most nats between what samples say of a token and what a version says of it."""
        policy, embedder = self.weights(version), load_embedder(self.model)
        if version:
            embedder = embedder.with_weights(self.exchange / f"policy-{version}.safetensors")
        worst = 0.0
        for each in samples:
            (embeddings,) = embedder.embed([prompt_inputs(USER_PATTERN, WORKLOAD, each.prompt)])
            expected = reference_logprobs(policy, embeddings, each.token_ids)
            worst = max(worst, float((torch.tensor(each.logprobs) - expected).abs().max()))
        return worst


def found(look: Callable[[], Found | None], what: str) -> Found:
    end = time.monotonic() + LIMIT_S
    while (seen := look()) is None:
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
    return seen


class InBackground:
    """A thread that does something again and again until it is to stop; what goes wrong in it is raised then."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work()
        except BaseException as error:
            self._error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(LIMIT_S)
        if self._error is not None:
            raise self._error


class User:
    """Asks for samples, one job after the other, through the time in which there is no generator."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.accepted: list[str] = []
        rows = [row for row, length in enumerate(USER_PATTERN.row_lengths) for _ in range(length)]
        shape = {"num_rows": USER_PATTERN.num_rows, "num_cols": USER_PATTERN.num_cols}
        matrix = {**shape, "row_indices": rows, "col_indices": USER_PATTERN.col_indices.tolist()}
        self._body = {"matrix": matrix, "search": "sample", "budget": {"candidates": 4, "seconds": 120}}

    def ask(self) -> None:
        try:
            headers = {"Cache-Control": "no-cache", "Prefer": "wait=10"}
            response = httpx.post(f"{self._url}/v1/kernels", json=self._body, headers=headers, timeout=30)
        except httpx.TransportError:
            time.sleep(0.2)
            return
        if response.is_success:
            self.accepted.append(response.json()["job_id"])


class Witness:
    """Every sample of a user that was graded, and when: evaluators leave them to the trainer, who takes them away."""

    def __init__(self, connection: Redis) -> None:
        self._connection = connection
        self._last = "-"
        self.seen: list[tuple[float, Sampled]] = []

    def look(self) -> None:
        for entry, fields in self._connection.xrange(STREAM, self._last, "+"):
            self._last = f"({entry.decode()}"
            record = RewardRecord.model_validate_json(fields[b"record"])
            if record.workload.pattern == USER_PATTERN.digest and isinstance(record.candidate.origin, Sampled):
                self.seen.append((int(entry.split(b"-")[0]) / 1000, record.candidate.origin))
        time.sleep(0.02)


WORKLOAD = make_record().workload.model_copy(update={"pattern": USER_PATTERN.digest})


def a_spread_of_rewards(connection: Redis) -> Callable[[], None]:
    """What makes the trainer move: nothing that a random policy writes is ever right."""
    PatternStore(connection).put(PATTERN)
    stream, numbers = RewardStream(connection), iter(range(1_000_000))

    def publish() -> None:
        for _ in range(4):
            number = next(numbers)
            version = PolicyChannel(connection).standing().serving_version
            origin = make_sampled(token_ids=(20 + number % 300, 30 + number % 7, 0), first_version=version)
            stream.publish(make_record(f"spread:{number}", reward=(number % 5) / 4, origin=origin))
        time.sleep(1)

    return publish


@contextmanager
def background(*works: Callable[[], None]) -> Iterator[None]:
    with ExitStack() as running:
        for work in works:
            running.callback(InBackground(work).stop)
        yield


@pytest.fixture
def works(tmp_path: Path, redis_url: str) -> Iterator[Works]:
    running = Works(tmp_path, redis_url)
    try:
        yield running
    finally:
        running.end()


def decided_at(standing: PolicyStanding, version: int) -> float:
    """Seconds; of version 0, before anything."""
    verdict = standing.verdict(version)
    if version == 0:
        return 0.0
    assert verdict is not None and verdict.decision == "accepted", f"version {version} was given to users"
    return datetime.fromisoformat(verdict.decided_at).timestamp()


def test_killed_in_the_middle_of_a_canary_trainer_and_generator_go_on_and_no_user_sees_the_version_under_probe(
    works: Works, redis_url: str
) -> None:
    connection = connect(redis_url)
    witness, user = Witness(connect(redis_url)), User(works.url)
    wait_until(f"{works.url}/healthz", LIMIT_S)
    with background(user.ask, user.ask, witness.look, a_spread_of_rewards(connection)):
        under_probe = found(works.held, "a version under probe")
        works.trainer.kill()
        works.start_trainer()
        verdict = found(lambda: works.channel.standing().verdict(under_probe), "a verdict, with the trainer back")
        assert verdict.decision == "accepted", verdict
        found(lambda: works.channel.standing().serving_version or None, "a version in service")

        under_probe = found(works.held, "a version under probe, while another serves")
        works.generator.kill()
        good = works.channel.standing().serving_version
        assert works.held() == under_probe > good > 0, "killed too late"
        num_updates, told = works.num_updates(), len(works.log())
        works.start_generator()
        served = found(lambda: SERVES.search(works.log(), told), "an engine")
        assert int(served[1]) == good
        found(lambda: works.channel.standing().newest_judged >= under_probe or None, "a verdict after all")
        found(lambda: works.num_updates() > num_updates or None, "an update after the kill")
        newest = works.channel.standing().serving_version
        found(lambda: any(each.first_version >= newest for _, each in witness.seen) or None, "samples of the newest")

    states = [ends(connection, job_id) for job_id in user.accepted]
    assert states == [["finished"]] * len(user.accepted)
    check(works, witness)


def ends(connection: Redis, job_id: str) -> list[str]:
    """Once there is one."""
    jobs = JobStore(connection)

    def looked() -> list[str] | None:
        states = [event.status.status.state for event in jobs.events(job_id)]
        return [state for state in states if state not in ("queued", "running")] or None

    return found(looked, f"an end of job {job_id}")


def check(works: Works, witness: Witness) -> None:
    """Each sample is of the version it says, and was graded after that version was accepted."""
    standing = works.channel.standing()
    versions = sorted({each.last_version for _, each in witness.seen})
    assert len(versions) >= 3, versions
    for version in versions:
        of_it = [(at_s, each) for at_s, each in witness.seen if each.last_version == version]
        assert min(at_s for at_s, _ in of_it) >= decided_at(standing, version)
        whole = [each for _, each in of_it if each.first_version == version][:30]
        assert works.distance(version, whole) < CLOSE, version
    apart = [each for _, each in witness.seen if each.first_version == versions[-1]][:10]
    assert works.distance(versions[-2], apart) > 10 * CLOSE, "two versions cannot be told from each other"
    print(json.dumps({"samples": len(witness.seen), "versions": versions}))
