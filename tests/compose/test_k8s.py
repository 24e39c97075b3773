"""The Kubernetes manifests: valid, closed, and the services that the compose files start."""

import math
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from benchmarks.service.autoscaler import wanted
from services.evaluator.devices import CUDA_RUN_LIMIT_S
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.transport.gpu_kinds import QUEUE_NAME, queue_of
from tests.compose.compose_files import GPU_FILE, OWN_SERVICES, ROOT, document

FOLDER = ROOT / "deploy" / "k8s"
FILES = sorted(FOLDER.glob("*.yaml"))
VERSIONS = ("1.29", "1.37")
OF_COMPOSE = {"SPARSESMITH_EVALUATOR_GPU_CLAIMS_DIR", "SPARSESMITH_GENERATOR_PUBLISHED_ON"}
"""The device plugin hands each pod a GPU of its own; keys are asked for whoever may reach the service."""

Manifest = dict[str, Any]


def manifests(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


EVERY = [manifest for path in FILES for manifest in manifests(path)]
PODS = {
    each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in EVERY if "template" in each.get("spec", {})
}


def container(name: str) -> Manifest:
    (only,) = PODS[name]["containers"]
    found: Manifest = only
    return found


def find(kind: str, name: str) -> Manifest:
    (found,) = (each for each in EVERY if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_manifest_follows_the_schemas_of_kubernetes(path: Path, version: str) -> None:
    for manifest in manifests(path):
        if not manifest["apiVersion"].startswith("keda.sh/"):
            kubernetes_validate.validate(manifest, version, strict=True)


def test_a_manifest_outside_the_schemas_is_noticed() -> None:
    manifest = find("Deployment", "evaluator")
    wrong = {**manifest, "spec": {**manifest["spec"], "replicaz": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_there_are_redis_and_the_three_services_in_one_namespace() -> None:
    assert set(PODS) == {"redis", *OWN_SERVICES}
    assert {each["metadata"].get("namespace") for each in EVERY if each["kind"] != "Namespace"} == {"sparsesmith"}


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_a_service_has_the_image_the_command_and_the_variables_of_compose(name: str) -> None:
    composed, mine = document(GPU_FILE)["services"][name], container(name)
    assert (mine["image"], mine["command"]) == (composed["image"], composed["command"])
    told = {each["name"]: each["value"] for each in mine["env"]}
    expected = {key: str(value) for key, value in composed["environment"].items() if key not in OF_COMPOSE}
    if name == "generator":
        expected["SPARSESMITH_GENERATOR_KEYS"] = "on"
    assert told == expected


def test_redis_is_the_one_of_compose() -> None:
    composed, mine = document(GPU_FILE)["services"]["redis"], container("redis")
    assert (mine["image"], mine["command"]) == (composed["image"], composed["command"])


@pytest.mark.parametrize("name", OWN_SERVICES)
def test_a_service_mounts_what_it_mounts_in_compose(name: str) -> None:
    composed = [volume.split(":") for volume in document(GPU_FILE)["services"][name]["volumes"]]
    expected = {place: "ro" in mode for _, place, *mode in composed if place != "/run/gpu-claims"}
    mounted = {each["mountPath"]: each.get("readOnly", False) for each in container(name)["volumeMounts"]}
    assert {place: mounted[place] for place in expected} == expected
    assert set(mounted) - set(expected) <= {"/tmp", "/dev/shm"}


@pytest.mark.parametrize("name", ["redis", *OWN_SERVICES])
def test_no_pod_has_privileges_or_a_token(name: str) -> None:
    pod, held = PODS[name], container(name)["securityContext"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"]
    assert held["capabilities"] == {"drop": ["ALL"]}
    assert held["allowPrivilegeEscalation"] is False
    composed = document(GPU_FILE)["services"][name]
    assert held.get("readOnlyRootFilesystem", False) == composed.get("read_only", False)


def test_an_evaluator_has_longer_to_stop_than_its_longest_candidate_takes() -> None:
    limits = EvaluatorSettings()
    longest_s = limits.compile_limit_s + limits.build_limit_s + 2 * CUDA_RUN_LIMIT_S
    assert PODS["evaluator"]["terminationGracePeriodSeconds"] > longest_s


def test_evaluators_and_trainer_reach_redis_and_names_alone_and_nobody_reaches_them() -> None:
    egress = find("NetworkPolicy", "services")["spec"]
    assert egress["podSelector"]["matchExpressions"][0]["values"] == list(OWN_SERVICES)
    assert [[port["port"] for port in rule["ports"]] for rule in egress["egress"]] == [[6379], [53, 53]]
    closed = find("NetworkPolicy", "closed")["spec"]
    assert closed["policyTypes"] == ["Ingress"]
    assert "ingress" not in closed


def test_the_number_of_evaluators_follows_the_queue_and_those_at_work_as_the_loop_that_is_tested_does() -> None:
    scaled = find("ScaledObject", "evaluator")["spec"]
    lists = {trigger["name"]: trigger["metadata"]["listName"] for trigger in scaled["triggers"]}
    named = queue_of("NVIDIA H200")
    assert lists == {
        "waiting": f"rq:queue:{QUEUE_NAME}",
        "busy": f"rq:wip:{QUEUE_NAME}",
        "waiting_named": f"rq:queue:{named}",
        "busy_named": f"rq:wip:{named}",
    }
    assert "replicas" not in find("Deployment", "evaluator")["spec"]  # Else each `kubectl apply` would set it back.
    modifiers, most, least = (
        scaled["advanced"]["scalingModifiers"],
        scaled["maxReplicaCount"],
        scaled["minReplicaCount"],
    )
    for waiting in range(12):
        for busy in range(12):
            split = {"waiting": waiting // 3, "waiting_named": waiting - waiting // 3}
            value = eval(modifiers["formula"], {}, {**split, "busy": busy // 2, "busy_named": busy - busy // 2})
            by_keda = min(most, max(least, math.ceil(value / float(modifiers["target"]))))
            assert wanted(waiting=waiting, busy=busy, least=least, most=most) == by_keda


def test_evaluators_of_one_kind_are_on_its_nodes_and_scaled_by_what_they_may_take() -> None:
    script = ROOT / "deploy" / "k8s" / "gpu.sh"
    made = subprocess.run([script, "NVIDIA-L40S"], capture_output=True, text=True, check=True).stdout
    pods, scaled = (each for each in yaml.safe_load_all(made) if each)
    (usual,) = (each for each in yaml.safe_load_all((script.parent / "evaluator.yaml").read_text()) if each)
    template = pods["spec"]["template"]
    assert pods["metadata"]["name"] == scaled["metadata"]["name"] == "evaluator-nvidia-l40s"
    assert scaled["spec"]["scaleTargetRef"] == {"name": "evaluator-nvidia-l40s"}
    assert pods["spec"]["selector"]["matchLabels"] == {"app": "evaluator", "gpu": "NVIDIA-L40S"}
    assert template["metadata"]["labels"] == {"app": "evaluator", "gpu": "NVIDIA-L40S"}
    assert template["spec"].pop("nodeSelector") == {"nvidia.com/gpu.product": "NVIDIA-L40S"}
    assert template["spec"] == usual["spec"]["template"]["spec"]
    lists = {trigger["metadata"]["listName"] for trigger in scaled["spec"]["triggers"]}
    named = queue_of("NVIDIA L40S")
    assert lists == {f"rq:queue:{QUEUE_NAME}", f"rq:wip:{QUEUE_NAME}", f"rq:queue:{named}", f"rq:wip:{named}"}


def test_what_is_no_label_of_a_gpu_makes_no_manifest() -> None:
    made = subprocess.run([ROOT / "deploy" / "k8s" / "gpu.sh", "H200; x"], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (2, "")
