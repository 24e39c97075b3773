"""The composed stack on this machine, for real: images built, brought up, asked, taught, hurt, taken down.

    python -m benchmarks.service.containers [--out benchmarks/results] [--cached] [--build-words "..."]

Needs Docker with its Compose plugin, or Podman with podman-compose; without either it says so and ends well. Builds the
images without a GPU, from a copy of what git knows of this folder; then

- builds again after a change of code: how much of a build is kept;
- starts everything with two evaluators and the door for third parties, and waits until it is ready;
- posts examples/bcsstk13.mtx;
- asks the policy for samples until the trainer's next version was put into service or turned down;
- kills one of two evaluators in the middle of a job: the job is answered, and the evaluator is started again;
- pushes an evaluation through the door, with TLS, and tries what third parties may not;
- takes everything down and up again: answers are still there;
- takes everything down with its volumes, and looks what is left.

Any of these that fails ends it with 1, the logs, and no result file. `--build-words` go to `podman build`: `--volume`s of
pip's own configuration and folders, say. Needs the package's own environment for the client, as all benchmarks do.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.origin import RESULTS, ROOT, source_commit, write_result
from benchmarks.service.compose_engine import Engine, EngineFailed, find_engine
from sparsesmith.client.clients import Client
from sparsesmith.errors import SparsesmithError
from sparsesmith.runtime.ports import free_port
from sparsesmith_proto.api import Budget, Finished, TuningOptions

PROJECT = "sparsesmith-trial"
FILES = ("docker-compose.yml", "docker-compose.cpu.yml")
BUILT = ("keys", "generator", "evaluator", "trainer")
SERVED = ("redis", "generator", "evaluator", "trainer", "queue")
REDIS_IMAGE = "docker.io/valkey/valkey:9.1.1-alpine"
BASE_IMAGE = "docker.io/library/python:3.12-slim-bookworm"
STAND_IN = ROOT / "tests" / "containers" / "valkey.Dockerfile"
MATRIX = ROOT / "examples" / "bcsstk13.mtx"
READY_LIMIT_S = 1200
ANSWER_LIMIT_S = 1200
RESTART_LIMIT_S = 60
SEARCH_LIMIT_S = 1200
"""Of a request: its candidates bound it. A fresh evaluator compiles its interpreter first, minutes on a busy machine."""
SAMPLE_REQUESTS = 3
"""Of 16 samples each: enough for an update."""

KILL_EVALUATOR = """
import os, pathlib, signal
for folder in pathlib.Path("/proc").iterdir():
    if folder.name.isdigit() and int(folder.name) != os.getpid():
        words = (folder / "cmdline").read_bytes().split(b"\\0")
        if words[1:3] == [b"-m", b"services.evaluator"]:
            os.kill(int(folder.name), signal.SIGKILL)
"""
"""As a crash would: from inside, so that the container ends by itself and is restarted."""


class TrialFailed(Exception):
    """What must hold does not."""


@dataclass
class Trial:
    """The stack under trial."""

    engine: Engine
    folder: Path
    build_words: list[str]
    steps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port, self.queue_port = free_port(), free_port()
        self.environment = {
            **os.environ,
            "PORT": str(self.port),
            "QUEUE_PORT": str(self.queue_port),
            "QUEUE_HOSTS": "localhost,127.0.0.1",
            "EVALUATORS": "2",
        }

    def compose(self, *words: str, folder: Path | None = None) -> str:
        """Standard output. Raises EngineFailed."""
        files = [word for file in FILES for word in ("--file", file)]
        options = ["--podman-build-args", shlex.join(self.build_words)] if self.engine.container == "podman" else []
        command = [*self.engine.compose, *files, "--project-name", PROJECT, "--profile", "queue", *options, *words]
        return self.engine.run(command, folder or self.folder, self.environment)

    def step(self, name: str, take: Callable[[], dict[str, Any]]) -> None:
        """Takes a step and records it with its seconds."""
        print(f"{name} ...", flush=True)
        began = time.monotonic()
        facts = take()
        self.steps.append({"step": name, "seconds": round(time.monotonic() - began, 1), **facts})
        print(f"    {json.dumps(self.steps[-1])}", flush=True)

    def client(self) -> Client:
        """Whose requests no cache answers."""
        return Client(f"http://127.0.0.1:{self.port}", {"Cache-Control": "no-cache"})

    def containers(self, service: str) -> list[str]:
        return self.engine.names(PROJECT, service)

    def healthy(self, service: str) -> list[str]:
        """Containers of a service whose own check succeeds."""
        check = composed(self.folder)[service]["healthcheck"]["test"]
        return [name for name in self.containers(service) if self.engine.is_healthy(name, check)]

    def logs(self) -> str:
        """The end of what each container said."""
        parts = []
        for service in ("keys", *SERVED):
            for name in self.engine.names(PROJECT, service, stopped=True):
                command = [self.engine.container, "logs", "--tail", "15", name]
                ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
                parts.append(f"== {name}\n{ended.stdout}{ended.stderr}")
        return "\n".join(parts)


def composed(folder: Path) -> dict[str, Any]:
    """Services as the first compose file has them; the others change no health check."""
    import yaml

    services: dict[str, Any] = yaml.safe_load((folder / FILES[0]).read_text())["services"]
    return services


def build(trial: Trial, *, cached: bool) -> dict[str, Any]:
    trial.compose("build", *([] if cached else ["--no-cache"]), *BUILT)
    images = {}
    for service in BUILT:
        image = trial.engine.inspect(image_of(trial, service))
        images[service] = {"bytes": image["Size"], "user": image["Config"]["User"]}
    return {"from_nothing": not cached, "images": images}


def build_after_a_change(trial: Trial) -> dict[str, Any]:
    """Of a file that every image has: layers of packages are kept where this takes seconds."""
    copy = trial.folder.with_name("changed")
    shutil.copytree(trial.folder, copy)
    with (copy / "sparsesmith" / "errors.py").open("a") as file:
        file.write("\n# A change of code.\n")
    trial.compose("build", *BUILT, folder=copy)
    trial.compose("build", *BUILT)  # The images of the unchanged code again, for what follows.
    return {"changed": "sparsesmith/errors.py", "builds": 2}


def image_of(trial: Trial, service: str) -> str:
    name: str = composed(trial.folder)[service]["image"]
    return name if service == "keys" else f"{name}-cpu"


def bring_up(trial: Trial) -> dict[str, Any]:
    trial.compose("up", "--detach", "--no-build")
    return wait_until_healthy(trial)


def wait_until_healthy(trial: Trial) -> dict[str, Any]:
    began = time.monotonic()
    found: dict[str, int] = {}
    while time.monotonic() - began < READY_LIMIT_S:
        for service in SERVED:
            found[service] = len(trial.healthy(service))
        if found == {service: 2 if service == "evaluator" else 1 for service in SERVED}:
            return {"healthy": found}
        time.sleep(2)
    raise TrialFailed(f"after {READY_LIMIT_S} s these are healthy: {found}")


def bounds(trial: Trial) -> dict[str, Any]:
    """As the engine holds them."""
    found = {}
    for service in SERVED:
        host = trial.engine.inspect(trial.containers(service)[0])["HostConfig"]
        found[service] = {
            "memory_bytes": host["Memory"],
            "cores": host["NanoCpus"] / 1e9,
            "cpu_shares": host["CpuShares"],
            "log": host["LogConfig"]["Type"],
            "read_only": host["ReadonlyRootfs"],
            "capabilities_dropped": bool(host["CapDrop"]),
        }
        if not host["Memory"] > 0:
            raise TrialFailed(f"{service} has no bound of memory")
    return {"bounds": found}


def tune(trial: Trial) -> dict[str, Any]:
    options = TuningOptions(search="families", budget=Budget(candidates=32, seconds=SEARCH_LIMIT_S))
    with trial.client() as client:
        job = client.submit(MATRIX.name, MATRIX.read_bytes(), options)
        report = client.wait(job.job_id)
    trial.environment["ANSWERED"] = job.job_id
    return {
        "matrix": MATRIX.name,
        "answer": report.answer.kind,
        "device": report.device.name,
        "outcomes": report.search.outcomes,
    }


def learn(trial: Trial, limit_s: float) -> dict[str, Any]:
    """Samples until a version after the one in service was decided upon."""
    if limit_s == 0:
        return {"not_run": "--learn-seconds 0"}
    began, asked = time.monotonic(), 0
    with trial.client() as client:
        first = client.policy()
        while time.monotonic() - began < limit_s:
            if asked < SAMPLE_REQUESTS:
                options = TuningOptions(search="sample", budget=Budget(candidates=16, seconds=SEARCH_LIMIT_S))
                client.wait(client.submit(MATRIX.name, MATRIX.read_bytes(), options).job_id)
                asked += 1
            else:  # The trainer needs the cores.
                time.sleep(5)
            now = client.policy()
            verdicts = [
                {"version": each.version, "decision": each.decision, "reason": each.reason} for each in now.verdicts
            ]
            if now.version > first.version or verdicts:
                return {"requests": asked, "version": now.version, "verdicts": verdicts}
    raise TrialFailed(f"no version was put into service or turned down in {limit_s:g} s, after {asked} requests")


def kill_an_evaluator(trial: Trial) -> dict[str, Any]:
    before = {name: started_at(trial, name) for name in trial.containers("evaluator")}
    options = TuningOptions(search="families", budget=Budget(candidates=48, seconds=SEARCH_LIMIT_S))
    with trial.client() as client:
        job = client.submit("jagmesh7.mtx", (ROOT / "examples" / "jagmesh7.mtx").read_bytes(), options)
        wait_for(lambda: client.status(job.job_id).status.state == "running", "the job runs")
        victim = min(before)
        killed = threading.Timer(2.0, exec_in, (trial, victim, KILL_EVALUATOR))
        killed.start()
        report = client.wait(job.job_id)
        killed.join()
    started = "by the engine" if has_started_again(trial, victim, before[victim]) else start_by_hand(trial, victim)
    wait_for(lambda: len(trial.healthy("evaluator")) == 2, "both evaluators are healthy again")
    return {"answer": report.answer.kind, "outcomes": report.search.outcomes, "started_again": started}


def has_started_again(trial: Trial, name: str, before: str) -> bool:
    """Within the time in which a restart policy acts."""
    end = time.monotonic() + RESTART_LIMIT_S
    while started_at(trial, name) == before:
        if time.monotonic() > end:
            return False
        time.sleep(0.5)
    return True


def start_by_hand(trial: Trial, name: str) -> str:
    """Podman restarts no container with a health check where there is no systemd to time it."""
    if trial.engine.container != "podman" or Path("/run/systemd/system").exists():
        raise TrialFailed(f"{name} was not started again")
    trial.engine.run([trial.engine.container, "start", name])
    return "by hand: Podman without systemd does not"


def started_at(trial: Trial, name: str) -> str:
    return str(trial.engine.inspect(name)["State"]["StartedAt"])


def exec_in(trial: Trial, name: str, program: str) -> None:
    """A program that ends the container ends itself with it, which is no failure."""
    with suppress(EngineFailed):
        trial.engine.run([trial.engine.container, "exec", name, "python", "-c", program])


def push_through_the_door(trial: Trial) -> dict[str, Any]:
    """As a third party: the example script, then what it may not do, without the certificate, without the password."""
    keys = Path(tempfile.mkdtemp(dir=trial.folder.parent))
    for name in ("address", "certificate.pem"):
        text = trial.compose("run", "--rm", "--no-deps", "keys", "cat", f"/run/queue/{name}")
        (keys / name).write_text(text[text.index("rediss://" if name == "address" else "-----BEGIN") :])
    address = (keys / "address").read_text().strip()
    script = [sys.executable, str(ROOT / "examples" / "push_evaluation.py"), address]
    script += [str(ROOT / "examples" / "csr_rows.cu"), str(MATRIX)]
    pushed = subprocess.run(
        [*script, "--certificate", str(keys / "certificate.pem")], capture_output=True, text=True, check=False
    )
    if pushed.returncode != 0:
        raise TrialFailed(f"the script for third parties ended with {pushed.returncode}: {pushed.stderr}")
    blind = subprocess.run(script, capture_output=True, text=True, check=False)
    if "CERTIFICATE_VERIFY_FAILED" not in blind.stderr:
        raise TrialFailed(f"without the certificate the script said: {blind.stderr}")
    return {"said": pushed.stdout.splitlines()[0], "refused": refusals(address, keys / "certificate.pem")}


def refusals(address: str, certificate: Path) -> dict[str, str]:
    """What Redis says to what a third party may not do."""
    import redis

    trusted = {"ssl_ca_certs": str(certificate)}
    nobody = f"rediss://{address.split('@')[1]}"
    tried = {
        "GET sparsesmith:policy:latest": address,
        "KEYS *": address,
        "HGETALL rq:job:0123456789abcdef": address,
        "PING": nobody,
    }
    found = {}
    for command, at in tried.items():
        try:
            client: Any = redis.Redis.from_url(at, **trusted)
            client.execute_command(*command.split())
        except (redis.exceptions.NoPermissionError, redis.exceptions.AuthenticationError) as error:
            found[command if at == address else f"{command}, no password"] = str(error)
        else:
            raise TrialFailed(f"a third party may {command!r}")
    return found


def come_back(trial: Trial) -> dict[str, Any]:
    """Down, up, and what was answered before is there."""
    trial.compose("down")
    trial.compose("up", "--detach", "--no-build")
    facts = wait_until_healthy(trial)
    with trial.client() as client:
        status = client.status(trial.environment["ANSWERED"]).status
    if not isinstance(status, Finished):
        raise TrialFailed(f"the answer is gone: {status}")
    return {**facts, "earlier_answer": status.report.answer.kind}


def memory(trial: Trial) -> dict[str, Any]:
    """Of each container now, as it sees it."""
    command = [trial.engine.container, "stats", "--no-stream", "--format", "{{.Name}}\t{{.MemUsage}}"]
    rows = [line.split("\t") for line in trial.engine.run(command).splitlines()]
    return {"in_use": {name: usage for name, usage in rows if name.startswith(PROJECT)}}


def take_down(trial: Trial) -> dict[str, Any]:
    """podman-compose removes the volumes that it labelled, which are not all."""
    trial.compose("down", "--volumes")
    left = [name for service in ("keys", *SERVED) for name in trial.engine.names(PROJECT, service, stopped=True)]
    if left:
        raise TrialFailed(f"left behind: {left}")
    volumes = trial.engine.run([trial.engine.container, "volume", "ls", "--format", "{{.Name}}"]).split()
    forgotten = [name for name in volumes if name.startswith(PROJECT)]
    for name in forgotten:
        trial.engine.run([trial.engine.container, "volume", "rm", name])
    return {"containers_left": left, "volumes_removed_by_hand": forgotten}


def wait_for(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + ANSWER_LIMIT_S
    while not holds():
        if time.monotonic() > end:
            raise TrialFailed(f"not in {ANSWER_LIMIT_S} s: {what}")
        time.sleep(0.5)


def complete_stand_in(engine: Engine, build_words: list[str]) -> None:
    """A machine without a registry may have an image of Valkey's name made from a distribution's packages."""
    try:
        engine.run([engine.container, "run", "--rm", REDIS_IMAGE, "id", "valkey"])
    except EngineFailed:
        command = [engine.container, "build", *build_words, "--file", str(STAND_IN), "--tag", REDIS_IMAGE]
        engine.run([*command, str(STAND_IN.parent)])


def origins(engine: Engine) -> dict[str, str]:
    """What the images that are not ours say of themselves."""

    def said(image: str, *command: str) -> str:
        return engine.run([engine.container, "run", "--rm", image, *command]).strip()

    return {
        REDIS_IMAGE: said(REDIS_IMAGE, "valkey-server", "--version"),
        BASE_IMAGE: said(BASE_IMAGE, "python", "--version"),
    }


def copy_of_the_tree(folder: Path) -> Path:
    """What git knows of this folder, as it lies here."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    copy = folder / "tree"
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    return copy


def is_clean() -> bool:
    """Whether the commit says what was built."""
    status = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    return not status.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--cached", action="store_true", help="build with the layers that are there")
    parser.add_argument("--build-words", default=os.environ.get("BUILD_WORDS", ""), help="for `podman build`")
    parser.add_argument("--learn-seconds", type=float, default=1800, help="0: do not; the result file says so")
    options = parser.parse_args()
    engine = find_engine()
    if isinstance(engine, str):
        print(f"skipped: {engine}")
        return 0
    words = shlex.split(options.build_words)
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(engine, copy_of_the_tree(Path(folder)), words)
        try:
            complete_stand_in(engine, words)
            trial.step("build", lambda: build(trial, cached=options.cached))
            trial.step("build after a change of code", lambda: build_after_a_change(trial))
            trial.step("up", lambda: bring_up(trial))
            trial.step("bounds", lambda: bounds(trial))
            trial.step("tune", lambda: tune(trial))
            trial.step("kill an evaluator", lambda: kill_an_evaluator(trial))
            trial.step("third party", lambda: push_through_the_door(trial))
            trial.step("learn", lambda: learn(trial, options.learn_seconds))
            trial.step("memory", lambda: memory(trial))
            trial.step("down and up", lambda: come_back(trial))
            trial.step("down", lambda: take_down(trial))
        except (TrialFailed, EngineFailed, SparsesmithError) as error:
            print(f"FAILED: {error}\n{trial.logs()}", file=sys.stderr)
            return 1
        finally:
            with suppress(EngineFailed):
                trial.compose("down", "--volumes")
    result = {
        "kind": "containers",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit() + ("" if is_clean() else " and changes"),
        "command": "make test-containers",
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, no GPU",
        "versions": {**engine.versions(), **origins(engine)},
        "steps": trial.steps,
    }
    place = options.out / "cpu" / "containers.json"
    write_result(place, result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
