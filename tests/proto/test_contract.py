"""The wire contract against golden messages. A golden file changes only together with a version of the interface: what
was written by one release is read by the next."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pydantic
import pytest

from sparsesmith_proto import schema
from sparsesmith_proto.api import KernelRequest, Refinement
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import Message

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "proto" / "examples").glob("*.json"))
MATRIX = {"num_rows": 1, "num_cols": 1, "row_indices": [0], "col_indices": [0]}
SCHEMAS = ROOT / "proto" / "schema"
BY_NAME = {schema.file_name(message).removesuffix(".json"): message for message in schema.MESSAGES}

every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def message_type(path: Path) -> type[Message]:
    """`job_status.queued.json` is a JobStatus."""
    return BY_NAME[path.name.split(".")[0]]


def parse(path: Path) -> Message:
    return message_type(path).model_validate_json(path.read_bytes())


@every_example
def test_an_example_is_read_and_written_back_as_it_was(path: Path) -> None:
    assert parse(path).model_dump_json(indent=2) + "\n" == path.read_text()


@every_example
def test_the_schema_accepts_an_example(path: Path) -> None:
    document = json.loads((SCHEMAS / schema.file_name(message_type(path))).read_text())
    jsonschema.Draft202012Validator.check_schema(document)
    jsonschema.Draft202012Validator(document).validate(json.loads(path.read_text()))


@every_example
def test_an_unknown_field_is_refused_wherever_it_stands(path: Path) -> None:
    validator = jsonschema.Draft202012Validator(
        json.loads((SCHEMAS / schema.file_name(message_type(path))).read_text())
    )
    for changed in with_one_more_field(json.loads(path.read_text())):
        with pytest.raises(pydantic.ValidationError):
            message_type(path).model_validate_json(json.dumps(changed))
        assert not validator.is_valid(changed)


@every_example
def test_a_message_does_not_change(path: Path) -> None:
    message = parse(path)
    for name in type(message).model_fields:
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(message, name, getattr(message, name))


def test_every_message_and_every_member_of_a_union_has_an_example() -> None:
    shown = {type(part) for path in EXAMPLES for part in parts(parse(path))}
    assert concrete_messages() - shown == set()


@pytest.mark.parametrize("given", [{}, {"matrix": MATRIX, "task": "row_softmax"}])
def test_a_request_is_about_a_matrix_or_a_task(given: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError, match=r"matrix and task: (neither|both) given, one is needed"):
        KernelRequest.model_validate(given)


def test_what_an_earlier_release_wrote_of_a_workload_is_read_and_written_as_it_was() -> None:
    text = '{"pattern":"' + 64 * "a" + '","operation":"spmv","element_type":"float32","num_dense_cols":1,"values":null}'
    assert Workload.model_validate_json(text).model_dump_json() == text


def test_values_without_a_matrix_are_refused() -> None:
    with pytest.raises(pydantic.ValidationError, match="values: a task without a matrix has none"):
        Workload(operation="row_softmax", element_type="float32", values=64 * "a", axes={"rows": 2})


def test_equal_workloads_are_equal_keys() -> None:
    first, second = (
        Workload(operation="row_softmax", element_type="float32", axes=axes)
        for axes in ({"rows": 2, "cols": 3}, {"cols": 3, "rows": 2})
    )
    assert {first: 1}[second] == 1


def test_a_preset_of_the_loop_sets_its_numbers_and_takes_no_others() -> None:
    assert Refinement.model_validate({"preset": "fsr"}) == Refinement(preset="fsr", children=5, generations=5, beam=1)
    assert Refinement.model_validate({"preset": "fsr", "beam": "1"}).children == 5
    with pytest.raises(pydantic.ValidationError, match="children is 6: the preset fsr has 5"):
        Refinement.model_validate({"preset": "fsr", "children": 6})
    for unknown in ("other", ["fsr"], 5):
        with pytest.raises(pydantic.ValidationError, match="Input should be 'fsr'"):
            Refinement.model_validate({"preset": unknown})
    assert "preset" not in Refinement().model_dump()


def test_the_schema_files_are_fresh() -> None:
    assert schema.main(["--check"]) == 0


def test_a_stale_schema_file_is_found_and_mended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema.write_files(tmp_path)
    assert schema.main(["--check", "--folder", str(tmp_path)]) == 0
    (tmp_path / "problem.json").write_text("{}")
    (tmp_path / "reward_record.json").unlink()
    (tmp_path / "no_message.json").write_text("{}")
    assert schema.main(["--check", "--folder", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert all(name in told for name in ("problem.json", "reward_record.json", "no_message.json"))
    assert schema.main(["--folder", str(tmp_path)]) == 0
    assert schema.stale_files(tmp_path) == []


def with_one_more_field(document: Any) -> Iterator[Any]:
    """The document with an unknown field in one of its closed objects at a time."""
    if isinstance(document, dict):
        if not is_open(document):
            yield {**document, "later_field": [1]}
        for key, value in document.items():
            yield from ({**document, key: changed} for changed in with_one_more_field(value))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from (
                [*document[:number], changed, *document[number + 1 :]] for changed in with_one_more_field(value)
            )


def is_open(document: dict[str, Any]) -> bool:
    """Tables from names to numbers or texts, such as versions and metrics, have no fixed fields."""
    return document.keys() <= {
        *("driver", "nvrtc", "milestone", "paper", "policy_loss", "kl", "mean_reward"),
        *("passed", "mismatch", "block", "index", "rows", "cols"),
    }


def parts(value: object) -> Iterator[Message]:
    """The message and all messages in it."""
    if isinstance(value, Message):
        yield value
        for name in type(value).model_fields:
            yield from parts(getattr(value, name))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from parts(item)


def concrete_messages(base: type[Message] = Message) -> set[type[Message]]:
    """Of the contract; services have messages of their own."""
    found = {message for message in base.__subclasses__() if message.__module__.startswith("sparsesmith_proto.")}
    return found.union(*(concrete_messages(message) for message in found))
