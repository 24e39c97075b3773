"""On a GPU: formats built there have the bits of the host's builders."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.measure.instant import named_patterns
from sparsesmith.formats import complete_parameters, format_named
from sparsesmith.formats.on_device.catalogue import build_on_device
from sparsesmith.formats.on_device.machine import DeviceCsr
from tests.evaluator.test_device_builders import CHOICES

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = named_patterns(3e5)

FIRST_PROCESS = """
from tests.gpu.programs import make_device
make_device(builds_formats="at_once")
"""
SPARE_PROCESS = """
from sparsesmith.formats.on_device.rehearsal import rehearse_building
from tests.artifacts import answers
from tests.gpu.programs import make_device
rehearse_building(make_device(known=answers.make_device(), builds_formats="at_once").machine)
"""


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("name", CHOICES)
def test_the_gpu_builds_what_the_host_builds(name: str, pattern: object) -> None:
    import cupy

    from services.evaluator.cuda.building import CudaMachine, host_copy
    from sparsesmith.errors import InvalidProgram
    from sparsesmith.matrix.pattern import Pattern

    assert isinstance(pattern, Pattern)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        machine = CudaMachine(stream)
        arrays = map(machine.upload, (pattern.row_offsets, pattern.col_indices))
        csr = DeviceCsr(pattern.num_rows, pattern.num_cols, pattern.nnz, *arrays)
        format_ = format_named(name)
        for choice in CHOICES[name]:
            parameters = complete_parameters(format_, choice)
            try:
                expected = format_.build(pattern, parameters)
            except InvalidProgram as refusal:
                with pytest.raises(InvalidProgram) as caught:
                    build_on_device(machine, csr, format_, parameters, pattern)
                assert caught.value.message == refusal.message
                continue
            built = build_on_device(machine, csr, format_, parameters, pattern)
            assert built is not None
            layout = host_copy(built, machine)
            assert dict(layout.sizes) == dict(expected.sizes)
            np.testing.assert_array_equal(layout.value_sources, expected.value_sources)
            for key, array in expected.indices.items():
                np.testing.assert_array_equal(layout.indices[key], array, key)


def test_a_spare_process_compiles_nothing_of_what_builds_formats(gpu: None, tmp_path: Path) -> None:
    def compiled_after(script: str) -> set[str]:
        environment = {**os.environ, "CUPY_CACHE_DIR": str(tmp_path)}
        subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, check=True)
        return {each.name for each in tmp_path.iterdir()}

    of_first = compiled_after(FIRST_PROCESS)
    assert of_first
    assert compiled_after(SPARE_PROCESS) == of_first
