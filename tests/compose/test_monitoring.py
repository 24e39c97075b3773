"""Dashboard and alerts ask for what the services tell, by its name and labels."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from services.evaluator.metrics import EvaluatorMetrics
from services.trainer.metrics import TrainerMetrics
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import connect
from sparsesmith.transport.metrics_channel import MetricsChannel
from tests.artifacts.answers import make_device
from tests.compose.compose_files import ROOT
from tests.generator.live_service import Evaluators, live_service
from tests.generator.reports import make_passed, make_timing, report_for
from tests.transport.messages import make_job

FOLDER = ROOT / "deploy" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
RULES: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
REQUEST = {
    "matrix": {"num_rows": 3, "num_cols": 4, "row_indices": [0, 0, 1, 2], "col_indices": [0, 3, 1, 2]},
    "budget": {"candidates": 2, "seconds": 20},
}
OF_A_POLICY = {"sparsesmith_policy_version", "sparsesmith_policy_probe"}
"""Told by a service that has one; their names are looked for where they are made."""


def queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (rule["expr"] for rule in RULES)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of samples, each with its labels, of a live service whose evaluator and trainer have told theirs."""
    valkey = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    valkey.start()
    try:
        channel = MetricsChannel(connect(valkey.address))
        evaluator, trainer = EvaluatorMetrics(make_device(), {"device": True}), TrainerMetrics()
        evaluator.graded(report_for(make_job(), make_passed(make_timing(5))), 2.0)
        for name, registry in (("evaluator-a", evaluator.registry), ("trainer-b", trainer.registry)):
            channel.publish(name, generate_latest(registry))
        with live_service(valkey.address, Evaluators()) as http:
            http.post("/v1/kernels", json=REQUEST, headers={"Prefer": "wait=10"})
            text = http.get("/metrics").text
    finally:
        valkey.stop()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        found.setdefault(family.name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def test_every_metric_that_is_asked_for_is_told(told: dict[str, set[str]]) -> None:
    policy = (ROOT / "services" / "generator" / "metrics.py").read_text()
    asked = {name for query in queries() for name in re.findall(r"sparsesmith_\w+", query)}
    assert len(asked) > 15
    missing = asked - told.keys()
    assert missing <= OF_A_POLICY
    assert all(f'"{name}"' in policy for name in missing)


def test_every_label_that_is_asked_for_is_one_of_its_metric(told: dict[str, set[str]]) -> None:
    for query in queries():
        names = [name for name in re.findall(r"sparsesmith_\w+", query) if name not in OF_A_POLICY]
        known = {"le"}.union(*(told[name] for name in names)) if names else {"job"}
        asked = set(re.findall(r"(\w+)\s*[!=]~?\"", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            asked |= {label.strip() for label in group.split(",")}
        if "sparsesmith_trainer_figure" in names:
            known.add("figure")  # Before the first update there is no figure.
        assert asked <= known, query


def test_every_alert_says_what_is_wrong_and_how_much_it_matters() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith((".", ")."))


def test_no_two_panels_lie_upon_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
