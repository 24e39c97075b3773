"""The C library: built here with the system's compiler, its products on a stand-in driver that interprets the kernels,
what it says without a driver, its examples."""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from sparsesmith.errors import Unavailable
from sparsesmith.operator import Operator
from sparsesmith.operator.native.build import NAME, SOURCES, build
from sparsesmith.program.starting import starting_program
from tests.artifacts.answers import make_matrix, make_report

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
COMPILERS = [("apply.c", ["cc", "-std=c11"]), ("apply.cpp", ["c++", "-std=c++17"])]
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a libcuda.so.1 that is none."""
    folder = tmp_path_factory.mktemp("driver")
    flags = ["-std=c11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    subprocess.run(["cc", *flags, "-o", str(folder / "libcuda.so.1"), str(HERE / "stand_in_driver.c")], check=True)
    return folder


@pytest.fixture(scope="module")
def operator_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved operator of float64, with its transpose."""
    path, matrix = tmp_path_factory.mktemp("operator") / "A.operator", make_matrix()
    report = make_report(matrix, starting_program("sell", "spmv", "float64"), element_type="float64")
    Operator(report, matrix).save(path, transposed=True)
    return path


def test_kernels_run_through_the_library_are_right(library: Path, stand_in: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(stand_in), "SPARSESMITH_OP_LIBRARY": str(library)}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(HERE / "on_the_stand_in.py")]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout.splitlines()[-1]


def test_the_library_exports_what_its_header_declares_and_nothing_else(library: Path) -> None:
    declared = set(re.findall(r"\b(sparsesmith_op_\w+)\(", (SOURCES / "sparsesmith_op.h").read_text()))
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True)
    assert {line.split()[-1] for line in listed.stdout.splitlines()} == declared
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"cuda|nvidia", needed)


def test_without_a_driver_that_is_what_it_says(library: Path, operator_file: Path) -> None:
    opened = ctypes.CDLL(str(library))
    opened.sparsesmith_op_last_error.restype = ctypes.c_char_p
    handle = ctypes.c_void_p()
    status = opened.sparsesmith_op_load(str(operator_file).encode(), ctypes.byref(handle))
    words = opened.sparsesmith_op_last_error().decode()
    if status == 0:
        pytest.skip("there is a driver")
    assert status == 3 and re.match(r"no NVIDIA driver: libcuda\.so\.1", words), words
    assert not handle.value
    assert opened.sparsesmith_op_load(b"/nowhere", ctypes.byref(handle)) == 2
    assert opened.sparsesmith_op_last_error() == b"/nowhere cannot be opened"
    assert opened.sparsesmith_op_apply(None, ctypes.c_double(1), None, ctypes.c_double(0), None, None) == 1
    assert opened.sparsesmith_op_last_error() == b"op is NULL"


def run(command: list[str | Path], **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    ("source", "compiler"), [("apply.c", ["cc", "-std=c11"]), ("apply.cpp", ["c++", "-std=c++17"])]
)
def test_an_example_compiles_without_a_warning_and_runs(
    source: str, compiler: list[str], library: Path, stand_in: Path, operator_file: Path, tmp_path: Path
) -> None:
    program = tmp_path / "apply"
    flags = [*STRICT, f"-I{SOURCES}", f"-I{ROOT / 'examples'}", f"-L{library.parent}", f"-Wl,-rpath,{library.parent}"]
    built = run([*compiler, *flags, "-o", program, ROOT / "examples" / source, f"-l:{NAME}", "-ldl"])
    assert built.returncode == 0, built.stderr
    ran = run([program, operator_file], LD_LIBRARY_PATH=str(stand_in))
    assert (ran.returncode, ran.stdout) == (0, f"40 x 30, {make_matrix().nnz} nonzeros\n"), ran.stderr
    ran = run([program, operator_file], LD_LIBRARY_PATH=str(stand_in), STAND_IN_NO_GPU="1")
    assert ran.returncode == 1 and "finds no GPU" in ran.stderr
    assert "cannot be opened" in run([program, "/nowhere"]).stderr


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_a_wheel_may_hold_the_library(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert re.search(r"-py3-none-manylinux_2_\d+_\w+\.whl$", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        path = archive.extract(f"sparsesmith/operator/native/{NAME}", tmp_path)
    assert ctypes.CDLL(path).sparsesmith_op_abi() == 1


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc -DMISTAKE -include /nowhere.h")
    with pytest.raises(Unavailable, match=r"nowhere\.h"):
        build(tmp_path)
    monkeypatch.setenv("CC", "/no/compiler")
    with pytest.raises(Unavailable, match="building libsparsesmith_op"):
        build(tmp_path)
    assert not [*tmp_path.iterdir()]
