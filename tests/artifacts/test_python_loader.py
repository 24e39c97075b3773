"""The Python loader's text is executed, its kernels on a stand-in driver; what needs a GPU is in tests/gpu."""

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.errors import InvalidMatrix, Unavailable
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report
from tests.operator.stand_in import run_on_the_stand_in

MATRIX = make_matrix()


def loaded(text: str) -> Any:
    """The loader as a module."""
    module = ModuleType("loader")
    exec(compile(text, "loader.py", "exec"), module.__dict__)
    return module


@pytest.fixture
def without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where CuPy is not installed."""
    monkeypatch.setitem(sys.modules, "cupy", None)


def test_a_loader_holds_the_program_and_the_workload() -> None:
    report = make_report(MATRIX)
    module = loaded(python_loader(report))
    assert (CSR_PROGRAM, report.workload) == (module.PROGRAM, module.WORKLOAD)


@pytest.mark.parametrize(
    "comment", ['"""', "\\n and \\", "$title ${x}", "{braces} %s", "tab\there", "Grüße ∑", 'ends with "']
)
def test_a_program_survives_whatever_its_comments_hold(comment: str) -> None:
    program = f"{CSR_PROGRAM}// {comment}\n"
    assert program == loaded(python_loader(make_report(MATRIX, program))).PROGRAM


def test_a_matrix_of_another_pattern_is_refused_before_a_gpu_is_asked_for() -> None:
    module = loaded(python_loader(make_report(MATRIX)))
    with pytest.raises(InvalidMatrix, match="another pattern") as caught:
        module.load(make_matrix(seed=1))
    assert caught.value.limit == module.WORKLOAD.pattern


@pytest.mark.parametrize("program", [CSR_PROGRAM, None])
def test_without_cupy_a_loader_says_what_to_install(program: str | None, without_cupy: None) -> None:
    module = loaded(python_loader(make_report(MATRIX, program)))
    with pytest.raises(Unavailable, match="pip install cupy"):
        module.load(MATRIX)


def test_a_loader_of_the_library_names_the_routine() -> None:
    text = python_loader(make_report(MATRIX, None))
    assert "Nothing faster than cusparse_csr_alg2 was found" in text
    assert make_report(MATRIX, None).workload == loaded(text).WORKLOAD


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_loaders_of_good_programs_multiply_on_the_stand_in(tmp_path: Path) -> None:
    run_on_the_stand_in(Path(__file__).with_name("loaders_on_the_stand_in.py"), tmp_path)
