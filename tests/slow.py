"""Which tests `make test` leaves to `make test-slow`."""

import os

import pytest

of_minutes = pytest.mark.skipif(
    "SPARSESMITH_SLOW_TESTS" not in os.environ,
    reason="takes a minute or more: SPARSESMITH_SLOW_TESTS=1 (`make test-slow`) runs it",
)
