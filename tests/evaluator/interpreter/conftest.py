"""Real CUDA programs for the interpreter: compiled by NVRTC once per source, launched on arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter import Argument, LaunchReport, PtxModule, launch, load_module

Load = Callable[[str], PtxModule]
Run = Callable[..., LaunchReport]


@pytest.fixture(scope="session")
def compiler() -> Iterator[Compiler]:
    with Compiler(timeout_s=60) as running:
        yield running


@pytest.fixture
def load(compiler: Compiler) -> Load:
    """Compile and load a CUDA source whose kernel is named `k`."""

    def load_source(source: str) -> PtxModule:
        result = compiler.compile(source, "sm_90")
        assert isinstance(result, Compiled), result
        return load_module(result.ptx)

    return load_source


@pytest.fixture
def run(load: Load) -> Run:
    """Compile a CUDA source and launch its kernel `k`."""

    def run_source(
        source: str, grid: int | Sequence[int], block: int | Sequence[int], *arguments: Argument, **options: Any
    ) -> LaunchReport:
        return launch(load(source), "k", grid, block, arguments, **options)

    return run_source
