"""Every setting is there for something, and says what."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pydantic_settings import BaseSettings

from services.evaluator.settings import EvaluatorSettings
from services.generator.settings import GeneratorSettings
from services.trainer.settings import TrainerSettings

SERVICES = Path(__file__).parents[1] / "services"
SETTINGS: Mapping[str, type[BaseSettings]] = {
    "evaluator": EvaluatorSettings,
    "generator": GeneratorSettings,
    "trainer": TrainerSettings,
}


def names_read(service: str) -> Iterator[str]:
    """Attributes of what is called `settings`, and fields of the options that the trainer fills by name."""
    for path in (SERVICES / service).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(
                    attr=name, value=ast.Name(id="settings") | ast.Attribute(attr="settings" | "_settings")
                ):
                    yield name
                case ast.ClassDef(name=kind, body=body) if service == "trainer" and kind.endswith("Options"):
                    fields = (each.target for each in body if isinstance(each, ast.AnnAssign))
                    yield from (field.id for field in fields if isinstance(field, ast.Name))


@pytest.mark.parametrize("service", SETTINGS)
def test_every_setting_is_read(service: str) -> None:
    assert set(SETTINGS[service].model_fields) - set(names_read(service)) == set()


@pytest.mark.parametrize("kind", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_is_described(kind: type[BaseSettings]) -> None:
    assert [name for name, field in kind.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("name", ["BUILD_LIMIT_S", "STORE_LIMIT_S"])
def test_the_limit_of_building_a_format_is_read_by_its_name_of_earlier_releases_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SPARSESMITH_EVALUATOR_{name}", "7")
    assert EvaluatorSettings().build_limit_s == 7
