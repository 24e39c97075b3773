"""An operator in a file: what comes back, without a server or a compiler, and what is refused."""

import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import sparsesmith
from sparsesmith.errors import InvalidInput
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.matrix.values import fixed_values
from sparsesmith.operator import Operator
from sparsesmith.operator.file import read_sections
from sparsesmith.operator.operator import another_architecture
from sparsesmith.operator.saved import read_saved
from sparsesmith.program.program import parse_program
from sparsesmith.program.starting import starting_program
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report
from tests.client.test_base_wheel import BLOCK

MATRIX = make_matrix()
SELL = starting_program("sell", "spmv", "float32")
ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:.*SciPy computes the products:RuntimeWarning")


@pytest.fixture
def no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """An operator of format sell, saved."""
    path = tmp_path / "A.operator"
    Operator(make_report(MATRIX, SELL), MATRIX).save(path)
    return path


def test_what_is_loaded_is_what_was_saved(saved: Path, no_cupy: None) -> None:
    loaded = sparsesmith.load(saved)
    assert (loaded.report, loaded.program, loaded.shape) == (make_report(MATRIX, SELL), SELL, (40, 30))
    x = np.random.default_rng(0).standard_normal(30)
    np.testing.assert_allclose(loaded @ x, MATRIX @ x, rtol=1e-5, atol=1e-6)
    assert abs(loaded.to_scipy() - MATRIX.astype(np.float32)).max() == 0


def test_a_file_holds_the_storage_format_and_machine_code_for_the_reports_gpu(saved: Path) -> None:
    parts = read_saved(saved).parts
    program, pattern = parse_program(SELL, "spmv", "float32"), pattern_from_scipy(MATRIX)
    built = build_layout(program.format, program.parameters, pattern, None)
    assert parts.layout is not None and parts.layout.value_sources is not None
    assert (parts.layout.sizes, parts.layout.num_slots) == (built.sizes, built.num_slots)
    assert parts.layout.indices.keys() == built.indices.keys()
    for name, array in built.indices.items():
        np.testing.assert_array_equal(parts.layout.indices[name], array)
    np.testing.assert_array_equal(parts.layout.value_sources, built.value_sources)
    assert parts.architecture == "sm_90" and parts.cubin[:4] == b"\x7fELF"
    assert all(launch.kernel.encode() in parts.cubin for launch in program.launches)


def test_new_values_are_saved_and_a_view_stays_one(tmp_path: Path, no_cupy: None) -> None:
    operator = Operator(make_report(MATRIX, None, element_type="float64"), MATRIX)
    operator.T @ np.ones(40)
    operator.update_values(MATRIX.data * 2)
    operator.T.save(tmp_path / "A")
    loaded = sparsesmith.load(tmp_path / "A")
    assert loaded.shape == (30, 40)
    np.testing.assert_array_equal(loaded @ np.ones(40), 2 * (MATRIX.T @ np.ones(40)))


def test_a_compressed_program_is_saved_with_its_tables(tmp_path: Path) -> None:
    ones = MATRIX.copy()
    ones.data[:] = 3
    program = CSR_PROGRAM.replace("//@ format csr\n", "//@ format csr\n//@ values constant\n")
    program = program.replace("const float* values", "const float* constant_value").replace(
        "values[j]", "*constant_value"
    )
    report = make_report(ones, program, values=fixed_values(ones.data, "float32").digest)
    Operator(report, ones).save(tmp_path / "A")
    layout = read_saved(tmp_path / "A").parts.layout
    assert layout is not None and layout.indices["constant_value"].tolist() == [3]


def test_loading_needs_no_compiler_no_server_and_nothing_heavy(saved: Path) -> None:
    code = f"""
import importlib.abc, socket, sys, warnings
class NoClient(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        assert not name.startswith(("httpx", "sparsesmith.client", "sparsesmith.tuning")), name
sys.meta_path.insert(0, NoClient())
import sparsesmith, numpy
import sparsesmith.cuda.nvrtc
sparsesmith.cuda.nvrtc.find_library = None
socket.socket = None
warnings.simplefilter("ignore")
print((sparsesmith.load({str(saved)!r}) @ numpy.ones(30, "float32")).sum())
"""
    ran = subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert float(ran.stdout) == pytest.approx((MATRIX @ np.ones(30)).sum(), rel=1e-5)


def test_without_a_compiler_a_file_has_no_machine_code_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparsesmith.cuda.nvrtc._library_folders", lambda: iter(()))
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.warns(RuntimeWarning, match="saved without machine code.*libnvrtc was found neither") as said:
        Operator(make_report(MATRIX), MATRIX).save(tmp_path / "A")
    assert [warning.filename for warning in said] == [__file__]
    parts = read_saved(tmp_path / "A").parts
    assert (parts.cubin, parts.architecture) == (b"", None) and parts.layout is not None


def refused(path: Path, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        sparsesmith.load(path)
    assert caught.value.field == "path" and str(path) in caught.value.message


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.9, 0.999])
def test_a_file_that_is_cut_short_is_refused(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    refused(saved, "is damaged|is no saved operator")


def test_a_changed_byte_of_any_section_is_found(saved: Path) -> None:
    data = saved.read_bytes()
    for name, content in read_sections(saved).items():
        if not len(content):
            continue
        place = data.index(bytes(content))
        saved.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        refused(saved, f"is damaged: section {name} ")
    saved.write_bytes(data[:30] + b"?" + data[31:])
    refused(saved, "is damaged: its table")


def test_a_file_of_another_version_or_kind_is_refused_by_name(saved: Path) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[:8] + struct.pack("<I", 2) + data[12:])
    refused(saved, "is of version 2: this release reads 1")
    saved.write_bytes(b"PK" + data[2:])
    refused(saved, "is no saved operator")


def test_a_gpu_of_another_architecture_is_told_both_and_what_helps() -> None:
    error = another_architecture(Path("A"), "sm_90", "sm_80")
    assert error.message.startswith(
        "path: A holds machine code for sm_90, this GPU is sm_80: load(path, recompile=True)"
    )
    assert (error.value, error.limit) == ("sm_90", "sm_80")


def test_saving_over_a_file_leaves_the_old_one_until_the_new_is_whole(saved: Path, no_cupy: None) -> None:
    before = saved.read_bytes()
    with pytest.raises(OSError):
        Operator(make_report(MATRIX), MATRIX).save(saved.parent / "missing" / "A")
    assert saved.read_bytes() == before
    Operator(make_report(MATRIX, None), MATRIX).save(saved)
    assert sparsesmith.load(saved).program is None and [*saved.parent.iterdir()] == [saved]


def test_an_operator_of_a_large_pattern_keeps_every_index(tmp_path: Path) -> None:
    matrix: Any = scipy.sparse.random(3000, 2000, 0.01, format="csr", random_state=1)
    Operator(make_report(matrix, SELL), matrix).save(tmp_path / "A")
    found = sparsesmith.load(tmp_path / "A").to_scipy()
    np.testing.assert_array_equal(found.indices, matrix.indices)
    np.testing.assert_array_equal(found.data, matrix.data.astype(np.float32))
