"""The whole stack on one machine: what `sparsesmith up` starts, watches and stops.

Every service is started by the command and the environment that docker-compose.yml gives it. A service that ends is
started again after a pause that doubles with each early death.
"""

import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from sparsesmith.errors import Conflict, SparsesmithError
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.processes import start, stop

log = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STEADY_AFTER_S = 60.0
"""A service that ran this long starts its next restart with the first pause."""
WATCH_EVERY_S = 0.5
STOP_TIMEOUT_S = 20.0
MOST_LOG_BYTES = 20 * 2**20
"""Of a service's log when the service starts; a longer one is put aside."""


@dataclass(frozen=True)
class StackOptions:
    """What to start, and where its state lives."""

    state: Path
    """Folder: valkey/ (queue and jobs), policy/ (published weights), trainer/ (checkpoints), signing/ (key of
    reports), logs/."""
    port: int = 8000
    num_evaluators: int = 1
    """One a GPU where there are any."""
    redis_url: str | None = None
    """None: the embedded Valkey."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beyond what the stack sets itself."""
    longest_pause_s: float = LONGEST_PAUSE_S
    """Before a service that ends again and again is started anew."""


@dataclass
class _Service:
    name: str
    module: str
    process: "subprocess.Popen[bytes] | None" = None
    started_at: float = 0.0
    pause_s: float = FIRST_PAUSE_S
    restart_at: float | None = None


class Stack:
    """Context manager around the running services. One a state folder."""

    def __init__(self, options: StackOptions, on_event: Callable[[str], None] = log.info) -> None:
        self._options = options
        self._on_event = on_event
        self.state = options.state.resolve()
        self._valkey = None if options.redis_url else EmbeddedValkey(self.state / "valkey")
        evaluators = [_Service(f"evaluator-{number}", "services.evaluator") for number in range(options.num_evaluators)]
        self._services = [
            _Service("generator", "services.generator"),
            *evaluators,
            _Service("trainer", "services.trainer"),
        ]
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="stack", daemon=True)

    @property
    def url(self) -> str:
        """Where the generator listens."""
        return f"http://127.0.0.1:{self._options.port}"

    @property
    def redis_url(self) -> str:
        return self._options.redis_url or (self._valkey.address if self._valkey else "")

    def __enter__(self) -> Self:
        """Start everything; readiness is `GET /readyz`. Raises Conflict where another stack uses the state folder."""
        for folder in ("logs", "policy", "trainer"):
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.state)
        try:
            if self._valkey is not None:
                self._valkey.start()
            for service in self._services:
                self._start(service)
        except BaseException:
            self._stop_all()
            raise
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._watcher.join()
        self._stop_all()

    def _stop_all(self) -> None:
        """The services first and together: they leave their last words in Valkey."""
        stoppers = [
            threading.Thread(target=stop, args=(service.process, STOP_TIMEOUT_S))
            for service in self._services
            if service.process is not None
        ]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        if self._valkey is not None:
            self._valkey.stop()
        os.close(self._lock)

    def pids(self) -> dict[str, int]:
        """Process ids of what runs now, by service name."""
        running = {service.name: service.process.pid for service in self._services if service.process is not None}
        if self._valkey is not None and self._valkey.pid is not None:
            running["valkey"] = self._valkey.pid
        return running

    def log_file(self, name: str) -> Path:
        """Where a service's output goes."""
        return self.state / "logs" / f"{name}.log"

    def environment(self) -> dict[str, str]:
        """What every service is started with."""
        return {
            **os.environ,
            "SPARSESMITH_REDIS_URL": self.redis_url,
            "SPARSESMITH_EVALUATOR_GPU_CLAIMS_DIR": str(self.state / "gpus"),
            "SPARSESMITH_GENERATOR_PORT": str(self._options.port),
            "SPARSESMITH_GENERATOR_SIGNING_DIR": str(self.state / "signing"),
            "SPARSESMITH_GENERATOR_EXCHANGE_DIR": str(self.state / "policy"),
            "SPARSESMITH_TRAINER_EXCHANGE_DIR": str(self.state / "policy"),
            "SPARSESMITH_TRAINER_STATE_DIR": str(self.state / "trainer"),
            **self._options.environment,
        }

    def _start(self, service: _Service) -> None:
        command = [sys.executable, "-m", service.module]
        put_aside(self.log_file(service.name))
        service.process = start(command, self.log_file(service.name), self.environment())
        service.started_at = time.monotonic()
        service.restart_at = None
        self._on_event(f"{service.name} started (pid {service.process.pid})")

    def _watch(self) -> None:
        while not self._stopping.wait(WATCH_EVERY_S):
            if self._valkey is not None and not self._valkey.is_alive():
                self._revive(self._valkey)
            for service in self._services:
                self._look_after(service)

    def _revive(self, valkey: EmbeddedValkey) -> None:
        self._on_event("valkey ended; starting it again")
        try:
            valkey.start()
        except SparsesmithError as error:
            self._on_event(error.message)

    def _look_after(self, service: _Service) -> None:
        now = time.monotonic()
        if service.restart_at is not None:
            if now >= service.restart_at:
                self._start_again(service, now)
            return
        if service.process is None or service.process.poll() is None:
            return
        if now - service.started_at > STEADY_AFTER_S:
            service.pause_s = FIRST_PAUSE_S
        code = service.process.returncode
        self._on_event(f"{service.name} ended with code {code}; again in {service.pause_s:g} s, see its log")
        stop(service.process, 0)
        self._pause(service, now)

    def _start_again(self, service: _Service, now: float) -> None:
        try:
            self._start(service)
        except OSError as error:  # No memory, no disk: perhaps later.
            self._on_event(f"{service.name} cannot be started: {error}")
            self._pause(service, now)

    def _pause(self, service: _Service, now: float) -> None:
        service.restart_at = now + service.pause_s
        service.pause_s = min(2 * service.pause_s, self._options.longest_pause_s)


def put_aside(log_file: Path) -> None:
    """A long log becomes `NAME.old.log`, in the place of the one before: restarts without end fill no disk."""
    if log_file.exists() and log_file.stat().st_size > MOST_LOG_BYTES:
        log_file.replace(log_file.with_suffix(".old.log"))


def _lock(state: Path) -> int:
    """A lock that the kernel gives back when we end, however we end."""
    handle = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Conflict(f"another stack runs on {state}", field="state", value=state) from None
    return handle
