"""The trainer: learns online from what the evaluators measured and publishes better weights.

python -m services.trainer             serve until SIGTERM
python -m services.trainer --once      one update, then stop
torchrun --nproc-per-node 2 -m services.trainer      the same with two GPUs, or two processes of a CPU
python -m services.trainer --check     exit 0 if Redis answers and the trainer of this state folder lives
"""

import argparse
import fcntl
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from services.trainer.online.journal import Heartbeat
from services.trainer.policy_folder import missing_policy
from services.trainer.settings import TrainerSettings
from sparsesmith.errors import Conflict, InvalidOption, Unavailable

if TYPE_CHECKING:
    from sparsesmith.transport.trainer_lease import TrainerLease

logger = logging.getLogger("services.trainer")

REDIS_PAUSE_S = 2.0
RENEW_S = 30.0
"""Between two renewals of the lease on the stream."""


def main(arguments: list[str] | None = None) -> int:
    """Settings are read before anything heavy is imported."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = TrainerSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    except ValidationError as error:
        print(f"settings of the trainer: {error}", file=sys.stderr)
        return 1
    if options.check:
        return check_health(settings)
    if int(os.environ.get("RANK", "0")) > 0:
        return _follow(settings)
    try:
        with _alone(settings.state_dir):
            return serve(settings, max_updates=1 if options.once else None)
    except (Conflict, InvalidOption) as error:
        print(error.message, file=sys.stderr)
        return 1


def serve(settings: TrainerSettings, *, max_updates: int | None) -> int:
    """Trains until SIGTERM, Ctrl-C or `max_updates`. Without a policy it waits for one, or gives up if it is to end."""
    os.nice(settings.niceness)
    must_stop = _stop_signal(_heartbeat(settings))
    missing = missing_policy(settings)
    if missing and max_updates is not None:
        print(missing, file=sys.stderr)
        return 1
    if missing:
        logger.warning("%s; looking again every %g s", missing, settings.folder_poll_s)
    while missing_policy(settings):
        if _wait(settings.folder_poll_s, must_stop):
            return 0
    _train(settings, must_stop, max_updates)
    return 0


def _follow(settings: TrainerSettings) -> int:
    """One of torchrun's processes beside the first."""
    from services.trainer.service import follow

    os.nice(settings.niceness)
    logger.info("followed through %d updates", follow(settings))
    return 0


def check_health(settings: TrainerSettings) -> int:
    """Prints what is wrong; nothing and 0 when all is well."""
    from sparsesmith.transport.connection import connect, is_answering

    age_s = _heartbeat(settings).age_s()
    if age_s is None or age_s > settings.heartbeat_limit_s:
        print("the trainer of this folder gives no sign of life", file=sys.stderr)
        return 1
    if not is_answering(connect(settings.redis_url)):
        print("Redis does not answer", file=sys.stderr)
        return 1
    return 0


def _train(settings: TrainerSettings, must_stop: Callable[[], bool], max_updates: int | None) -> None:
    """Outages of Redis are waited out: what is not acknowledged comes again."""
    from services.trainer.metrics import TrainerMetrics
    from services.trainer.service import open_workshop
    from services.trainer.training import train
    from sparsesmith.transport.connection import connect
    from sparsesmith.transport.metrics_channel import MetricsChannel, published
    from sparsesmith.transport.trainer_lease import TrainerLease

    connection, metrics = connect(settings.redis_url), TrainerMetrics()
    lease = TrainerLease(connection, _identity(settings.state_dir))
    must_stop = _holding(lease, must_stop)
    if must_stop():
        return
    workshop = open_workshop(settings, connection, metrics.updated)
    logger.info("trains %s", settings.policy_dir)
    with published(metrics.registry, MetricsChannel(connection), settings.consumer):
        while not must_stop():
            try:
                train(workshop, must_stop, max_updates)
                break
            except Unavailable as error:
                logger.warning("%s; again in %g s", error.message, REDIS_PAUSE_S)
                _wait(REDIS_PAUSE_S, must_stop)
    workshop.learner.dismiss()
    with suppress(Unavailable):  # It ends by itself.
        lease.release()


def _holding(lease: "TrainerLease", must_stop: Callable[[], bool]) -> Callable[[], bool]:
    """Asking renews the lease now and then. It raises Conflict where another trainer has it."""
    renew_at = 0.0

    def asked() -> bool:
        nonlocal renew_at
        if not must_stop():
            if time.monotonic() >= renew_at:
                with suppress(Unavailable):  # Whatever needs Redis says so itself, and the lease outlives an outage.
                    lease.hold()
                    renew_at = time.monotonic() + RENEW_S
            return False
        return True

    return asked


def _identity(state_dir: Path) -> str:
    """Of the trainer of this state folder, wherever it runs."""
    path = state_dir / "identity"
    if not path.is_file():
        path.write_text(uuid.uuid4().hex, encoding="ascii")
    return path.read_text(encoding="ascii")


def _stop_signal(heartbeat: Heartbeat) -> Callable[[], bool]:
    """Whether SIGTERM or Ctrl-C came; asking is a sign of life."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())

    def must_stop() -> bool:
        heartbeat.beat()
        return stopping.is_set()

    return must_stop


def _wait(seconds: float, must_stop: Callable[[], bool]) -> bool:
    """Sleeps in short steps; whether it is time to stop."""
    pause = threading.Event()
    for _ in range(max(1, round(seconds / 0.25))):
        if must_stop():
            return True
        pause.wait(0.25)
    return must_stop()


def _heartbeat(settings: TrainerSettings) -> Heartbeat:
    return Heartbeat(settings.state_dir / "heartbeat")


@contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    """Holds a lock that the kernel gives back when we end, however we end. Raises Conflict where another has it."""
    state_dir.mkdir(parents=True, exist_ok=True)
    with (state_dir / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"another trainer works on {state_dir}", field="state_dir", value=state_dir) from None
        yield


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m services.trainer", description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--once", action="store_true", help="make one update, then stop")
    mode.add_argument("--check", action="store_true", help="exit 0 if the trainer of this state folder is alive")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
