"""`python -m services.generator`: one process tree that ends with SIGTERM or Ctrl-C and leaves no job behind."""

import logging
import os
import signal
import sys

import uvicorn
from pydantic import ValidationError

from services.generator.heap import configure_heap
from services.generator.settings import GeneratorSettings


def main() -> None:
    """Settings are read before anything heavy is imported."""
    try:
        settings = GeneratorSettings(_secrets_dir=os.environ.get("SPARSESMITH_SECRETS_DIR"))
    except ValidationError as error:
        sys.exit(f"settings of the generator: {error}")
    configure_heap()
    # uvicorn takes the signals over, stops gracefully and then raises them again: an ordered end is a success.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")

    from services.generator.channels import Channels
    from services.generator.http.app import create_app
    from services.generator.service import Service
    from sparsesmith.transport.shelf import ShelfLimits

    uvicorn.run(
        create_app(Service(settings, Channels(settings.redis_url, ShelfLimits(max_bytes=settings.max_stored_bytes)))),
        host=settings.host,
        port=settings.port,
        timeout_graceful_shutdown=settings.stop_grace_s,
        log_config=None,
        access_log=False,
    )


if __name__ == "__main__":
    main()
