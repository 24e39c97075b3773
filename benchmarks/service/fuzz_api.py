"""Schemathesis against a real generator: does every answer say what the OpenAPI document says, and is none a 500?

    make fuzz-api        (python -m benchmarks.service.fuzz_api --schemathesis COMMAND [--examples N] [--out FILE.json])

A generator process without policy and evaluator, on an embedded Valkey; jobs are accepted and wait. It asks for keys, and
schemathesis has one: whether routes that need one are closed without it is one of its checks. All checks run. A
schema cannot say that indices lie within the shape: a request that fits it may be refused with 413 or 422, and one that
does not with 413, where that is found first. Streams of events, which stay open, are left out. Then all that is asked of
a job again, of one that is there: a generated id is that of none. Exits with 1 where anything failed.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx

from benchmarks.origin import ROOT, source_commit, write_result
from sparsesmith.operations.imported.folder import VARIABLE
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.processes import start, stop
from sparsesmith.transport.connection import connect
from sparsesmith.transport.keys import KeyStore
from sparsesmith_proto.keys import Quotas

DEFAULT_OUT = ROOT / "benchmarks" / "results" / "cpu" / "api-fuzzing.json"
START_TIMEOUT_S = 60
QUOTAS = Quotas(unfinished_jobs=100_000, bytes_a_day=2**50, requests_a_minute=1_000_000)
LEFT_OUT_PATHS = "events"
SETTINGS = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 404, 409, 413, 422]
negative_data_rejection.expected-statuses = [400, 401, 404, 405, 409, 413, 415, 422, 431]
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemathesis", default="schemathesis", help="its command")
    parser.add_argument(
        "--examples", type=int, default=300, help="generated requests an operation, beside the coverage"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ss-") as folder:
        state = Path(folder)
        (state / "tasks").mkdir()
        valkey = EmbeddedValkey(state / "valkey")
        valkey.start()
        port = free_port()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "proto")]),
            "SPARSESMITH_REDIS_URL": valkey.address,
            "SPARSESMITH_GENERATOR_POLICY_DIR": "",
            "SPARSESMITH_GENERATOR_PORT": str(port),
            "SPARSESMITH_GENERATOR_MAX_WAIT_S": "1",
            "SPARSESMITH_GENERATOR_MAX_WAITING_JOBS": "100000",
            "SPARSESMITH_GENERATOR_KEYS": "on",
            # Off by default: then every answer to a posted task is 403, and nothing of it is tried.
            "SPARSESMITH_GENERATOR_POSTED_TASKS": "true",
            VARIABLE: str(state / "tasks"),
        }
        generator = start([sys.executable, "-m", "services.generator"], state / "generator.log", environment)
        try:
            url = f"http://127.0.0.1:{port}"
            wait(url)
            began = time.monotonic()
            _, key = KeyStore(connect(valkey.address)).create("fuzzer", QUOTAS)
            run = fuzz(url, options, key)
            on_a_job = fuzz(url, options, key, posted(url, key))
            seconds = time.monotonic() - began
        finally:
            stop(generator, 20)
            valkey.stop()
        num_defects = (state / "generator.log").read_text(errors="replace").count("Traceback")
    print(run.stdout, on_a_job.stdout)
    result = {
        "kind": "api-fuzzing",
        "date": datetime.now(UTC).date().isoformat(),
        "commit": source_commit(),
        "command": "make fuzz-api",
        "schemathesis": version(options.schemathesis),
        "examples": options.examples,
        "seed": options.seed,
        "settings": SETTINGS.strip().splitlines(),
        "left_out_paths": LEFT_OUT_PATHS,
        **counts(run.stdout),
        "on_a_job": counts(on_a_job.stdout),
        "tracebacks_in_the_log": num_defects,
        "exit_code": run.returncode or on_a_job.returncode,
        "seconds": round(seconds, 1),
    }
    write_result(options.out, result)
    return 1 if result["exit_code"] or num_defects else 0


def posted(url: str, key: str) -> str:
    """The id of a job that waits."""
    matrix = {"num_rows": 3, "num_cols": 3, "row_indices": [0, 1, 2], "col_indices": [0, 1, 2]}
    order, headers = {"matrix": matrix, "search": "families"}, {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{url}/v1/kernels", json=order, headers=headers, timeout=30)
    return str(answer.raise_for_status().json()["job_id"])


def fuzz(
    url: str, options: argparse.Namespace, key: str, job_id: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """All operations, or those of this job."""
    arguments = [
        options.schemathesis, "run", f"{url}/openapi.json", "--checks", "all", "--exclude-path-regex", LEFT_OUT_PATHS, "--phases", "examples,coverage,fuzzing", "--max-examples",
        str(options.examples), "--seed", str(options.seed), "--header", f"Authorization: Bearer {key}", "--request-timeout", "30", "--no-color",
    ]  # fmt: skip
    settings = SETTINGS
    if job_id is not None:
        arguments += ["--include-path-regex", "job_id"]
        settings += f'\n[parameters]\n"path.job_id" = "{job_id}"\n'
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "schemathesis.toml").write_text(settings)
        return subprocess.run(arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=False)


def counts(output: str) -> dict[str, int]:
    """Of the summary: operations tested, requests made, failures found."""
    tested = re.search(r"Tested: (\d+)", output)
    generated = re.search(r"([\d,]+) generated", output)
    found = re.search(r"found ([\d,]+) unique", output)
    numbers = {"operations": tested, "requests": generated, "failures": found}
    return {name: 0 if match is None else int(match[1].replace(",", "")) for name, match in numbers.items()}


def version(command: str) -> str:
    answer = subprocess.run([command, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return answer.strip().rpartition(" ")[2]


def wait(url: str) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").is_success:
                return
        time.sleep(0.2)
    raise TimeoutError(f"{url} is not ready after {START_TIMEOUT_S} s")


if __name__ == "__main__":
    raise SystemExit(main())
