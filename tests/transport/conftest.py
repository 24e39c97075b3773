from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transport.workers import Workers


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(redis_url, tmp_path)
    yield workers
    workers.kill_all()
