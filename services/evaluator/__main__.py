"""An evaluator: one device, one worker process, jobs from the queue until it is told to stop.

python -m services.evaluator             serve
python -m services.evaluator --burst     grade what is queued, then stop
python -m services.evaluator --check     exit 0 if Redis answers and an evaluator of this machine lives
"""

import argparse
import logging
import os
import socket
import sys
import uuid
from contextlib import closing
from typing import TYPE_CHECKING

from pydantic import ValidationError

from services.evaluator.settings import EvaluatorSettings

if TYPE_CHECKING:
    from services.evaluator.cuda.ecc import EccCounters
    from services.evaluator.devices import Chosen
    from services.evaluator.jobs import Origins
    from services.evaluator.sanitizing.winners import WinnersGate

logger = logging.getLogger("services.evaluator")

DEVICE_GONE = 3
"""Exit code of a worker whose device does not start any more, or has a faulty memory."""


def main(arguments: list[str] | None = None) -> int:
    """Settings are read before anything heavy is imported."""
    options = _parse(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = EvaluatorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    except ValidationError as error:
        print(f"settings of the evaluator: {error}", file=sys.stderr)
        return 1
    if options.check:
        return check_health(settings)
    return serve(settings, burst=options.burst) if operations_are_right() else 1


def operations_are_right() -> bool:
    """Whether those that other packages register can be graded; prints what is wrong with the first that cannot."""
    from services.evaluator.vetting import vet_registered
    from sparsesmith.errors import InvalidOption

    try:
        vet_registered()
    except InvalidOption as error:
        print(error.message, file=sys.stderr)
        return False
    return True


def serve(settings: EvaluatorSettings, *, burst: bool) -> int:
    """Grades jobs until SIGTERM: the one in hand is given back to the queue, the device's process ended."""
    from services.evaluator import jobs
    from services.evaluator.compiling.compiler import Compiler
    from services.evaluator.confinement.profile import available
    from services.evaluator.cores import num_cores
    from services.evaluator.devices import Gpu, chosen_device, device_process, inspections_beside
    from services.evaluator.known_routines import KnownRoutines
    from services.evaluator.memory_errors import MemoryWatch, Uncounted
    from services.evaluator.metrics import EvaluatorMetrics
    from sparsesmith.families.usual import usual_programs
    from sparsesmith.transport.accounts import Accounts
    from sparsesmith.transport.connection import connect
    from sparsesmith.transport.gpu_kinds import GpuKind
    from sparsesmith.transport.metrics_channel import MetricsChannel, published
    from sparsesmith.transport.pattern_store import PatternStore
    from sparsesmith.transport.quarantine import Quarantine
    from sparsesmith.transport.queue import evaluation_worker
    from sparsesmith.transport.routine_times import RoutineTimes
    from sparsesmith.transport.stream import RewardStream
    from sparsesmith.transport.traces import traces_to

    traces = traces_to(settings.traces_endpoint, "sparsesmith-evaluator")
    connection = connect(settings.redis_url)
    quarantine = Quarantine(connection)
    chosen = chosen_device(settings, quarantine.uuids)
    num_workers = settings.compile_workers or max(1, num_cores() // settings.sharers - 1)
    with (
        closing(device_process(settings, chosen)) as process,
        Compiler(num_workers, timeout_s=settings.compile_limit_s, confinement=settings.confinement) as compiler,
        inspections_beside(settings, process.start()) as inspections,
    ):
        device = process.description()
        compiler.warm_up(device.architecture)
        if device.kind == "cuda":
            compiler.compile_meanwhile((each.source for each in usual_programs()), device.architecture)
        kernel = available()
        logger.info("confinement: %s", "off" if settings.confinement == "off" else kernel.describe())
        logger.info("device: %s (%s), %d compilers", device.name, device.architecture, num_workers)
        worker = evaluation_worker(connection, f"{_name_prefix()}{uuid.uuid4().hex[:8]}", GpuKind.of(device))
        ecc = _ecc(chosen.visible_device) if isinstance(chosen, Gpu) else None
        gpu = socket.gethostname() if ecc is None else ecc.uuid
        others = RoutineTimes(connection, gpu, device) if settings.sharers > 1 and gpu else None
        grader = jobs.Grader(
            process,
            compiler,
            inspections=inspections,
            routines=KnownRoutines(settings.cached_baselines, others),
            must_stop=worker.must_stop,
            others_wait=worker.others_wait,
            waited_s=worker.waited_s,
            retire=worker.retire,
        )
        if (gate := _gate(settings, chosen)) is not None:
            grader.look_last(gate)

        def take_out(reason: str) -> None:
            worker.retire()
            if ecc is not None:
                quarantine.add(ecc.uuid, worker.name, reason)

        memory = MemoryWatch(Uncounted() if ecc is None else ecc, take_out)
        parts = {"compiler": compiler.is_confined, "device": process.is_confined}
        held = {part: is_held and kernel.is_whole for part, is_held in parts.items()}
        metrics = EvaluatorMetrics(device, held, ecc is not None and ecc.is_counting)
        channels = PatternStore(connection), RewardStream(connection), Accounts(connection)
        service = jobs.GradingService(grader, *channels, metrics.graded, memory, _told_of(settings), traces)
        jobs.install(service)
        with published(metrics.registry, MetricsChannel(connection), worker.name):
            worker.work(burst=burst, logging_level="WARNING")
    if worker.is_retiring:
        logger.error("%s is out of service: its worker ends, its job goes to another", device.name)
        return DEVICE_GONE
    return 0


def _told_of(settings: EvaluatorSettings) -> "Origins":
    """Origins beside the policy's whose programs go on the stream."""
    from sparsesmith_proto.kernel import FromFamily, Mutated, Written

    ours: Origins = (FromFamily, Mutated) if settings.tells_of_all else ()
    return (*ours, Written) if settings.records_written else ours


def _gate(settings: EvaluatorSettings, chosen: "Chosen") -> "WinnersGate | None":
    """None, with a word in the log where it is wished for, without a GPU or without the tool."""
    from services.evaluator.devices import Gpu
    from services.evaluator.sanitizing.sanitizer import Sanitizer
    from services.evaluator.sanitizing.winners import WinnersGate
    from sparsesmith.cuda.sanitizer import COMMAND, find_sanitizer

    if not settings.sanitizes_winners:
        return None
    command = find_sanitizer()
    if not isinstance(chosen, Gpu) or command is None:
        missing = "no GPU" if command is not None else f"no {COMMAND} on PATH or in a CUDA toolkit"
        logger.warning("winners are not looked at by %s: there is %s", COMMAND, missing)
        return None
    logger.info("winners are looked at by %s, %g s each", command, settings.sanitizer_limit_s)
    return WinnersGate(Sanitizer(command, settings.sanitizer_limit_s, chosen.visible_device))


def _ecc(visible_device: str) -> "EccCounters":
    """Says in the log where errors are not counted."""
    from services.evaluator.cuda.ecc import EccCounters

    counters = EccCounters(visible_device)
    if not counters.is_counting:
        logger.warning("ECC of GPU %s is off or not told: nobody counts errors of its memory", visible_device)
    return counters


def check_health(settings: EvaluatorSettings) -> int:
    """Prints what is wrong; nothing and 0 when all is well."""
    from sparsesmith.errors import Unavailable
    from sparsesmith.transport.connection import connect
    from sparsesmith.transport.queue import living_workers

    try:
        names = living_workers(connect(settings.redis_url))
    except Unavailable as error:
        print(error.message, file=sys.stderr)
        return 1
    if not any(name.startswith(_name_prefix()) for name in names):
        print("no evaluator of this machine has a heartbeat", file=sys.stderr)
        return 1
    return 0


def _name_prefix() -> str:
    return f"evaluator-{socket.gethostname()}-"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m services.evaluator", description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--burst", action="store_true", help="grade what is queued, then stop")
    mode.add_argument("--check", action="store_true", help="exit 0 if an evaluator of this machine is alive")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    exit_code = main()
    if exit_code == DEVICE_GONE:
        # At exit multiprocessing waits for the device's processes, which hang in the driver where no signal reaches.
        logging.shutdown()
        os._exit(exit_code)
    raise SystemExit(exit_code)
