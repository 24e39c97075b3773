"""`python -m services.generator`: one process tree that ends with SIGTERM or Ctrl-C and leaves no job behind."""

import argparse
import logging
import os
import signal
import sys

import uvicorn
from pydantic import ValidationError

from services.generator.heap import configure_heap
from services.generator.settings import GeneratorSettings

NOT_STARTED = 3
"""Exit code of a service that could not listen."""
HELP = (
    "The generator: serves HTTP until SIGTERM or Ctrl-C. It has no options; every setting is a field of "
    "GeneratorSettings (services/generator/settings.py), read from SPARSESMITH_GENERATOR_<NAME>."
)


def main() -> None:
    """Settings are read before anything heavy is imported."""
    argparse.ArgumentParser(prog="python -m services.generator", description=HELP).parse_args()
    try:
        settings = GeneratorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    except ValidationError as error:
        sys.exit(f"settings of the generator: {error}")
    refuse_wrong_operations()
    configure_heap()
    # uvicorn takes the signals over, stops gracefully and then raises them again: an ordered end is a success.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))

    from services.generator.channels import Channels
    from services.generator.http.app import create_app
    from services.generator.http.request_log import RequestIds
    from services.generator.http.server import server_config
    from services.generator.service import Service
    from sparsesmith.errors import InvalidOption
    from sparsesmith.transport.job_store import History
    from sparsesmith.transport.queue import QueueLimits
    from sparsesmith.transport.shelf import ShelfLimits

    handler = logging.StreamHandler()
    handler.addFilter(RequestIds())
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s%(request)s", handlers=[handler]
    )
    limits = ShelfLimits(max_bytes=settings.max_stored_bytes)
    queue = QueueLimits(gpu_patience_s=settings.gpu_patience_s)
    history = History(days=settings.history_days, max_jobs=settings.history_jobs)
    try:
        service = Service(settings, Channels(settings.redis_url, limits, history, queue))
    except InvalidOption as error:
        sys.exit(f"settings of the generator: {error.message}")
    server = uvicorn.Server(server_config(create_app(service), settings, service.metrics))
    server.run()
    if not server.started:
        sys.exit(NOT_STARTED)


def refuse_wrong_operations() -> None:
    """Ends the start where another package has registered one that lacks a part."""
    from sparsesmith.errors import InvalidOption
    from sparsesmith.operations import operations

    try:
        operations()
    except InvalidOption as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
