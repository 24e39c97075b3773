"""Tests in a process of their own that finds the stand-in driver as libcuda.so.1."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_on_the_stand_in(tests: Path, folder: Path, **environment: str) -> None:
    """Builds the driver in the folder, with the system's C compiler. Fails where one of the tests does."""
    flags = ["-std=c11", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    source = Path(__file__).with_name("stand_in_driver.c")
    subprocess.run(["cc", *flags, "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(tests)]
    given = {**os.environ, "LD_LIBRARY_PATH": str(folder), **environment}
    ran = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False, timeout=280)
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert "skipped" not in ran.stdout.splitlines()[-1]
