"""The compose files: valid, closed, and in the words that the services read."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic_settings import BaseSettings

from deploy.keys import Wishes, make
from services.evaluator.settings import EvaluatorSettings
from services.generator.http.access import asks_for_keys
from services.generator.settings import GeneratorSettings
from services.trainer.settings import TrainerSettings
from sparsesmith.runtime.stack import Stack, StackOptions
from tests.compose.compose_files import CPU_FILE, GPU_FILE, OWN_SERVICES, ROOT, cpu_document, document, gvisor_document
from tests.compose.dockerfiles import dockerfile

EVERY_SERVICE = ("keys", "redis", *OWN_SERVICES, "queue")
SETTINGS: dict[str, type[BaseSettings]] = {
    "generator": GeneratorSettings,
    "evaluator": EvaluatorSettings,
    "trainer": TrainerSettings,
}


@pytest.fixture(params=["gpu", "cpu"])
def services(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The services for a machine with and without a GPU."""
    found: dict[str, Any] = (document(GPU_FILE) if request.param == "gpu" else cpu_document())["services"]
    return found


def check_against_specification(content: dict[str, Any], folder: Path) -> "subprocess.CompletedProcess[str]":
    """The compose specification's own JSON schema, as check-jsonschema ships it."""
    file = folder / "compose.json"
    file.write_text(json.dumps(content))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["gpu", "cpu", "merged"])
def test_the_files_follow_the_compose_specification(name: str, tmp_path: Path) -> None:
    content = {"gpu": document(GPU_FILE), "cpu": document(CPU_FILE), "merged": cpu_document()}[name]
    checked = check_against_specification(content, tmp_path)
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("files", [[GPU_FILE], [GPU_FILE, CPU_FILE]], ids=["gpu", "cpu"])
def test_with_gvisor_evaluators_alone_have_another_runtime(files: list[Path], tmp_path: Path) -> None:
    content = gvisor_document(*files)
    checked = check_against_specification(content, tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert {name: service["runtime"] for name, service in content["services"].items() if "runtime" in service} == {
        "evaluator": "runsc"
    }
    del content["services"]["evaluator"]["runtime"]
    assert content == (document(GPU_FILE) if files == [GPU_FILE] else cpu_document())


def test_a_file_outside_the_specification_is_noticed(tmp_path: Path) -> None:
    content = document(GPU_FILE)
    content["services"]["redis"]["reed_only"] = True
    assert check_against_specification(content, tmp_path).returncode == 1


@pytest.mark.skipif(shutil.which("docker") is None, reason="docker is not installed")
@pytest.mark.parametrize("files", [[GPU_FILE], [GPU_FILE, CPU_FILE]], ids=["gpu", "cpu"])
def test_docker_compose_reads_the_files(files: list[Path]) -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("docker has no compose plugin")
    options = [word for file in files for word in ("--file", str(file))]
    subprocess.run(["docker", "compose", *options, "config", "--quiet"], check=True, cwd=ROOT)


def test_there_are_redis_its_keys_the_three_services_and_a_door_on_request(services: dict[str, Any]) -> None:
    assert set(services) == {"keys", "redis", *OWN_SERVICES, "queue"}
    assert {name: service["profiles"] for name, service in services.items() if "profiles" in service} == {
        "queue": ["queue"]
    }


@pytest.mark.parametrize("name", EVERY_SERVICE)
def test_no_service_has_privileges(name: str, services: dict[str, Any]) -> None:
    service = services[name]
    assert not service.get("privileged")
    assert service["cap_drop"] == ["ALL"] and "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", EVERY_SERVICE)
def test_every_service_has_bounds_of_memory_cores_and_logs(name: str, services: dict[str, Any]) -> None:
    service = services[name]
    assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
    assert float(service["cpus"]) >= 0
    assert service["logging"] == {"driver": "json-file", "options": {"max-size": "20m", "max-file": "5"}}
    if float(service["cpus"]) == 0:  # As many as there are: by weight where all are busy.
        assert service["cpu_shares"] < services["redis"]["cpu_shares"]


@pytest.mark.parametrize("name", ["redis", *OWN_SERVICES])
@pytest.mark.parametrize("bound", ["memory", "cpus"])
def test_a_bound_of_a_service_is_a_variable(name: str, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"{name.upper()}_{bound.upper()}", "3")
    for services in (document(GPU_FILE)["services"], cpu_document()["services"]):
        assert str(services[name]["mem_limit" if bound == "memory" else bound]) == "3"


def test_redis_may_need_its_memory_twice(services: dict[str, Any]) -> None:
    words = services["redis"]["command"]
    most = words[words.index("--maxmemory") + 1]
    assert most.endswith("gb") and services["redis"]["mem_limit"].endswith("g")
    assert int(services["redis"]["mem_limit"][:-1]) >= 2 * int(most[:-2])
    matrices = int(services["generator"]["environment"]["SPARSESMITH_GENERATOR_MAX_STORED_BYTES"])
    assert 2 * matrices <= int(most[:-2]) * 2**30


@pytest.mark.parametrize("name", ["redis", *OWN_SERVICES, "queue"])
def test_a_service_that_ends_is_restarted_and_one_that_hangs_is_noticed(name: str, services: dict[str, Any]) -> None:
    service = services[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] == "CMD"


@pytest.mark.parametrize("name", [*OWN_SERVICES, "queue"])
def test_each_service_waits_for_redis(name: str, services: dict[str, Any]) -> None:
    assert services[name]["depends_on"] == {"redis": {"condition": "service_healthy"}}


def test_redis_waits_for_its_keys_and_only_those_have_them_who_need_them(services: dict[str, Any]) -> None:
    assert services["redis"]["depends_on"] == {"keys": {"condition": "service_completed_successfully"}}
    assert services["keys"]["network_mode"] == "none" and services["keys"]["restart"] == "no"
    mounts = {
        name: [volume.split(":")[0] for volume in service.get("volumes", [])] for name, service in services.items()
    }
    holders = {
        volume: {name for name, mounted in mounts.items() if volume in mounted}
        for volume in ("redis-keys", "service-keys", "queue-keys")
    }
    assert holders == {
        "redis-keys": {"keys", "redis"},
        "service-keys": {"keys", *OWN_SERVICES},
        "queue-keys": {"keys"},
    }


def test_the_door_for_third_parties_joins_two_networks_and_holds_nothing(services: dict[str, Any]) -> None:
    door = services["queue"]
    assert set(door["networks"]) == {"front", "services"}
    assert "volumes" not in door and "environment" not in door and door["read_only"] is True


def test_the_engines_caches_outlive_its_container(services: dict[str, Any]) -> None:
    generator = services["generator"]
    home = "/home/sparsesmith/.cache"
    assert f"engine-cache:{home}" in generator["volumes"]
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"):
        assert generator["environment"][variable].startswith(f"{home}/")
    (made,) = (line for line in dockerfile("generator").read_text().splitlines() if "install -d" in line)
    assert home in made.split()  # With the user's rights, which the volume takes over.


def test_the_evaluator_reaches_redis_alone_and_writes_nowhere(services: dict[str, Any]) -> None:
    evaluator = services["evaluator"]
    assert evaluator["networks"] == ["evaluation"]
    assert [name for name, service in services.items() if "evaluation" in service.get("networks", [])] == [
        "redis",
        "evaluator",
    ]
    assert document(GPU_FILE)["networks"]["evaluation"] == {"internal": True}
    assert evaluator["read_only"] is True
    assert evaluator["tmpfs"] == ["/tmp"]
    assert evaluator["volumes"] == ["gpu-claims:/run/gpu-claims", "service-keys:/run/sparsesmith:ro"]
    assert "ports" not in evaluator


def test_only_the_generator_is_open_and_the_door_on_request_and_only_to_this_machine(services: dict[str, Any]) -> None:
    assert {name: service["ports"] for name, service in services.items() if "ports" in service} == {
        "generator": ["127.0.0.1:8000:8000"],
        "queue": ["127.0.0.1:6380:6380"],
    }


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, False),
        ({"BIND": "0.0.0.0"}, True),
        ({"BIND": "192.0.2.1"}, True),
        ({"BIND": "0.0.0.0", "KEYS": "off"}, False),
    ],
)
def test_keys_are_asked_for_where_the_port_is_published_to_others(
    told: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in told.items():
        monkeypatch.setenv(variable, value)
    for services in (document(GPU_FILE)["services"], cpu_document()["services"]):
        environment = services["generator"]["environment"]
        given = {
            name.removeprefix("SPARSESMITH_GENERATOR_").lower(): value
            for name, value in environment.items()
            if name.startswith("SPARSESMITH_GENERATOR_")
        }
        assert asks_for_keys(GeneratorSettings.model_validate(given)) is expected


def test_redis_writes_before_it_answers_and_forgets_nothing(services: dict[str, Any]) -> None:
    words = services["redis"]["command"]
    assert words[:2] == ["valkey-server", "/run/redis/redis.conf"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert options == {
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--save": "",
        "--maxmemory": "4gb",
        "--maxmemory-policy": "noeviction",
    }


def test_the_number_of_evaluators_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALUATORS", "4")
    for services in (document(GPU_FILE)["services"], cpu_document()["services"]):
        assert services["evaluator"]["deploy"]["replicas"] == 4


def test_no_variable_stands_where_podman_reads_none() -> None:
    """podman-compose 1.6 leaves variables under `!override` as they are."""
    assert "!override" not in GPU_FILE.read_text() + CPU_FILE.read_text()
    for merged in (document(GPU_FILE), cpu_document()):
        assert merged["services"]["evaluator"]["deploy"]["mode"] == "replicated"  # Else it starts one.


def test_gpus_are_reserved_with_the_one_file_and_not_with_both() -> None:
    for name in OWN_SERVICES:
        devices = document(GPU_FILE)["services"][name]["deploy"]["resources"]["reservations"]["devices"]
        assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu", "compute", "utility"]}]
        assert "resources" not in cpu_document()["services"][name].get("deploy", {})
    assert {
        service["build"]["args"]["VARIANT"]
        for name, service in cpu_document()["services"].items()
        if name in OWN_SERVICES
    } == {"cpu"}


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_the_container_toolkit_is_told_which_driver_is_needed(name: str) -> None:
    assert document(GPU_FILE)["services"][name]["environment"]["NVIDIA_REQUIRE_CUDA"] == "cuda>=13.0"


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_what_a_service_is_told_is_what_its_settings_read(
    name: str, services: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix = f"SPARSESMITH_{name.upper()}_"
    told = services[name]["environment"]
    for variable, value in told.items():
        monkeypatch.setenv(variable, value)
    mine, theirs, guests = (make_folder(tmp_path / folder) for folder in ("redis", "services", "queue"))
    make(mine, theirs, guests, Wishes("a-password-of-sixteen", "", ("localhost",), 6380))
    settings = SETTINGS[name](_secrets_dir=tmp_path / "services").model_dump()
    assert settings["redis_url"] == "redis://:a-password-of-sixteen@redis:6379/0"
    own = {
        variable.removeprefix(prefix).lower(): value for variable, value in told.items() if variable.startswith(prefix)
    }
    assert {field: str(settings[field]) for field in own} == own
    others = {variable for variable in told if variable.startswith("SPARSESMITH_") and not variable.startswith(prefix)}
    assert others == {"SPARSESMITH_SECRETS_DIR"}


def test_the_local_stack_tells_its_services_no_less(tmp_path: Path, services: dict[str, Any]) -> None:
    local = {
        name
        for name in Stack(StackOptions(tmp_path, redis_url="redis://x")).environment()
        if name.startswith("SPARSESMITH_")
    }
    composed = {name for service in OWN_SERVICES for name in services[service]["environment"]}
    assert local - composed == {"SPARSESMITH_REDIS_URL"}  # With its password, it is a secret there.


def test_the_published_weights_go_from_trainer_to_generator(services: dict[str, Any]) -> None:
    place = "/var/lib/sparsesmith/policy"
    assert f"policy:{place}" in services["trainer"]["volumes"]
    assert f"policy:{place}:ro" in services["generator"]["volumes"]
    assert services["trainer"]["environment"]["SPARSESMITH_TRAINER_EXCHANGE_DIR"] == place
    assert services["generator"]["environment"]["SPARSESMITH_GENERATOR_EXCHANGE_DIR"] == place


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path
