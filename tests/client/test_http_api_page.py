"""The examples of docs/http-api.md are run, in order, against a real generator."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from services.generator.channels import Channels
from services.generator.http.app import create_app
from services.generator.service import Service
from services.generator.settings import GeneratorSettings
from sparsesmith_proto.api import JobStatus, Problem
from tests.generator.live_service import Evaluators, announce, live_service
from tests.generator.reports import make_device

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "http-api.md").read_text()
EXAMPLES: list[str] = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_every_example_works_and_says_what_the_page_says(redis_url: str, tmp_path: Path) -> None:
    for name in ("examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    announce(redis_url, make_device())
    parts = "\necho; echo =====\n".join(EXAMPLES)
    with live_service(redis_url, Evaluators(seconds=0.2)) as http:
        environment = {**os.environ, "SPARSESMITH_URL": str(http.base_url).rstrip("/")}
        command = ["bash", "-euo", "pipefail", "-c", parts]
        run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr
    shown = dict(zip(EXAMPLES, (part.strip() for part in run.stdout.split("=====")), strict=True))

    def output_of(part: str) -> str:
        (example,) = [example for example in EXAMPLES if part in example]
        return shown[example]

    assert JobStatus.model_validate_json(output_of('-F budget_seconds=60 "$URL/v1/kernels"\n')).status.state in (
        "queued",
        "running",
    )
    assert JobStatus.model_validate_json(output_of('"num_dense_cols": 8')).status.state in ("queued", "running")
    assert JobStatus.model_validate_json((tmp_path / "answer.json").read_text()).status.state == "finished"
    assert JobStatus.model_validate_json(output_of('"$URL$JOB"\n')).status.state == "finished"
    assert output_of("$JOB/events").count("event: finished") == 1
    assert JobStatus.model_validate_json(output_of("csr_scalar.cu")).status.state == "graded"
    assert JobStatus.model_validate_json(output_of("tuned_blocks.cu")).status.state == "graded"
    assert (tmp_path / "kernel.zip").read_bytes().startswith(b"PK")
    problem = re.search(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert problem is not None
    assert Problem.model_validate_json(output_of("budget_candidates=0")) == Problem(**json.loads(problem[1]))


def test_every_route_is_on_the_page() -> None:
    settings = GeneratorSettings(policy_dir=None)
    routes = create_app(Service(settings, Channels("unix:///nonexistent"))).openapi()["paths"]
    assert {path.partition("/{")[0] for path in routes} <= set(re.findall(r"/[a-z0-9/-]+[a-z]", PAGE))


def test_the_limits_of_the_page_are_the_defaults() -> None:
    settings = GeneratorSettings.model_fields
    shown = dict(re.findall(r"^\| [^|]+ \| ([^|]+) \| `([A-Z_]+)` \|$", PAGE, re.MULTILINE))
    units = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "s": 1}
    found = {}
    for limit, name in shown.items():
        number, _, unit = limit.strip().partition(" ")
        found[name] = int(number.replace(",", "")) * units.get(unit, 1)
    assert found == {name: settings[name.lower()].default for name in found}
    assert len(found) == 12
