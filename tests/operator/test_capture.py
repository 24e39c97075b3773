"""Which stream is asked whether it is being captured, without a GPU; tests/gpu/test_operator.py captures."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparsesmith.errors import Conflict
from sparsesmith.operator.device import refuse_in_a_capture


def cupy_on(address: int, is_capturing: bool) -> Any:
    """The part of CuPy that is asked for the current stream."""
    stream = SimpleNamespace(ptr=address, is_capturing=lambda: is_capturing)
    return SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream))


def test_a_first_product_in_a_capture_says_what_comes_before() -> None:
    with pytest.raises(Conflict, match=r"operator: .* multiply with A\^T once before the capture") as caught:
        refuse_in_a_capture(np.ones(3), cupy_on(4096, True), "A^T")
    assert (caught.value.field, caught.value.value) == ("operator", "capturing")


@pytest.mark.parametrize(("address", "is_capturing"), [(4096, False), (0, True), (1, True)])
def test_other_streams_are_let_pass(address: int, is_capturing: bool) -> None:
    refuse_in_a_capture(np.ones(3), cupy_on(address, is_capturing), "A")
