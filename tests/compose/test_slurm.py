"""The Slurm array job: what it asks Slurm for, and that it runs, with a stand-in for `srun`."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.evaluator.devices import CUDA_RUN_LIMIT_S
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.transport.connection import connect
from sparsesmith.transport.queue import evaluation_worker
from tests.compose.compose_files import GPU_FILE, ROOT, document
from tests.transport.messages import GPU

SCRIPT = ROOT / "deploy" / "slurm" / "evaluators.sbatch"
TEXT = SCRIPT.read_text()
ASKED = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", TEXT, re.MULTILINE))
STAND_IN = """#!/bin/sh
# srun for one task on this machine: its options are left out, its command runs.
echo "$@" >> "$SRUN_LOG"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""


def run(folder: Path, python: str, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    tools = folder / "tools"
    tools.mkdir()
    (tools / "srun").write_text(STAND_IN)
    (tools / "srun").chmod(0o755)
    told = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
        "SRUN_LOG": str(folder / "srun.log"),
        "SPARSESMITH_PYTHON": python,
        "SPARSESMITH_PAUSE_S": "0",
        **environment,
    }
    command = ["bash", str(SCRIPT), *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARSESMITH_")}
    return subprocess.run(
        command, env={**kept, **told}, cwd=ROOT, capture_output=True, text=True, check=False, timeout=250
    )


def test_bash_reads_the_script() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_shellcheck_finds_nothing() -> None:
    subprocess.run(["shellcheck", "--shell=bash", str(SCRIPT)], check=True)


def test_every_line_for_slurm_stands_before_the_first_command() -> None:
    """Slurm reads no further."""
    lines = TEXT.splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(number < first for number, line in enumerate(lines) if line.startswith("#SBATCH"))


def test_each_task_has_a_gpu_of_its_own_and_longer_to_stop_than_its_longest_candidate_takes() -> None:
    assert (ASKED["ntasks"], ASKED["gpus-per-task"]) == ("1", "1")
    signal, seconds = ASKED["signal"].split("@")
    limits = EvaluatorSettings()
    assert signal == "TERM"  # To the steps: with `B:` the script alone would hear of it.
    assert int(seconds) > limits.compile_limit_s + limits.build_limit_s + 2 * CUDA_RUN_LIMIT_S


def test_a_task_runs_the_command_of_compose(tmp_path: Path) -> None:
    done = run(tmp_path, "true", SPARSESMITH_SECRETS_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    composed = document(GPU_FILE)["services"]["evaluator"]["command"]
    assert (tmp_path / "srun.log").read_text().split()[1:] == ["true", *composed[1:]]


def test_a_task_without_secrets_says_what_is_missing(tmp_path: Path) -> None:
    done = run(tmp_path, "true")
    assert done.returncode != 0
    assert "SPARSESMITH_SECRETS_DIR: names the folder" in done.stderr


def test_a_task_whose_evaluator_fails_again_and_again_ends(tmp_path: Path) -> None:
    done = run(tmp_path, "false", SPARSESMITH_SECRETS_DIR=str(tmp_path))
    assert done.returncode == 1
    assert len((tmp_path / "srun.log").read_text().splitlines()) == 5
    assert "failed 5 times" in done.stderr


def test_a_task_finds_redis_by_its_secret_and_the_evaluators_of_its_machine(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "SPARSESMITH_REDIS_URL").write_text(redis_url)
    worker = evaluation_worker(connect(redis_url), f"evaluator-{socket.gethostname()}-a", GPU)
    worker.register_birth()  # type: ignore[no-untyped-call]
    done = run(tmp_path, sys.executable, "--check", SPARSESMITH_SECRETS_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
