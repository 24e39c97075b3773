"""Signed reports: what a server signed is verified by its public key alone, and nothing else is."""

import base64
import copy
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparsesmith.artifacts import artifact
from sparsesmith.artifacts.signing import Signer, kept_signer, read_key, verified
from sparsesmith.errors import InvalidOption, InvalidReport
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith_proto.api import SigningKey
from tests.artifacts.answers import make_matrix, make_report

MATRIX = make_matrix()


@pytest.fixture(scope="module")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Signer:
    return kept_signer(tmp_path_factory.mktemp("signing"))


@pytest.fixture(scope="module")
def file(signer: Signer) -> bytes:
    return artifact("json", signer.signed(make_report(MATRIX)), pattern_from_scipy(MATRIX)).content


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every number, word and truth value of a document, and where it stands."""
    match value:
        case dict():
            for name, each in value.items():
                yield from leaves(each, (*path, name))
        case list():
            for number, each in enumerate(value):
                yield from leaves(each, (*path, number))
        case _:
            yield path, value


def changed(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int() | float():
            return value * 1.0000001 + 1e-9 if isinstance(value, float) else value + 1
        case str():
            return f"{value} " if " " in value or not value else f"{value[:-1]}{'0' if value[-1] != '0' else '1'}"
        case None:
            return 1


def with_leaf(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    made = copy.deepcopy(document)
    place = made
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return made


def test_a_report_is_verified_by_the_public_key_as_a_file_of_the_server_or_as_pem(signer: Signer, file: bytes) -> None:
    signed = signer.signed(make_report(MATRIX))
    for key in (signer.public.model_dump_json().encode(), signer.public.public_key.encode()):
        assert verified(file, read_key(key)) == signed


def test_every_number_and_every_word_is_signed(signer: Signer, file: bytes) -> None:
    document = json.loads(file)
    tried = 0
    for path, value in leaves(document):
        with pytest.raises(InvalidReport):
            verified(json.dumps(with_leaf(document, path, changed(value))).encode(), signer.public)
        tried += 1
    assert tried > 60


def test_a_report_printed_anew_is_the_same_report(signer: Signer, file: bytes) -> None:
    document = json.loads(file)
    for printed in (
        json.dumps(document, sort_keys=True, separators=(",", ":")),
        json.dumps(dict(reversed(document.items())), indent=7),
        json.dumps(document).replace("5.0,", "5,"),  # As JavaScript writes whole numbers.
    ):
        verified(printed.encode(), signer.public)


def test_a_report_of_another_key_names_both_keys(signer: Signer, file: bytes, tmp_path: Path) -> None:
    other = kept_signer(tmp_path).public
    with pytest.raises(InvalidReport, match=f"{signer.public.key_id}.*{other.key_id}"):
        verified(file, other)
    # The name of a key alone helps nobody.
    renamed = SigningKey(key_id=signer.public.key_id, public_key=other.public_key)
    with pytest.raises(InvalidReport, match="changed"):
        verified(file, renamed)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"signature": 1}', b"\xff"])
def test_what_is_no_report_is_said_to_be_none(signer: Signer, data: bytes) -> None:
    with pytest.raises(InvalidReport, match="no report"):
        verified(data, signer.public)


def test_an_unsigned_report_is_refused(signer: Signer) -> None:
    with pytest.raises(InvalidReport, match="not signed"):
        verified(make_report(MATRIX).model_dump_json().encode(), signer.public)


def test_the_signature_of_one_report_does_not_fit_another(signer: Signer, file: bytes) -> None:
    other = signer.signed(make_report(MATRIX, None)).model_dump(mode="json")
    other["signature"] = json.loads(file)["signature"]
    with pytest.raises(InvalidReport, match="changed"):
        verified(json.dumps(other).encode(), signer.public)
    other["signature"]["signature"] = base64.b64encode(bytes(64)).decode()
    with pytest.raises(InvalidReport, match="changed"):
        verified(json.dumps(other).encode(), signer.public)


def test_a_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "signing"
    first = kept_signer(folder)
    assert kept_signer(folder).public == first.public
    (path,) = folder.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_signer(tmp_path / "another").public.key_id != first.public.key_id


def test_a_file_that_is_no_key_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "ed25519.pem"
    path.write_text("rubbish")
    with pytest.raises(InvalidOption, match=r"ed25519\.pem"):
        kept_signer(tmp_path)
    assert path.read_text() == "rubbish"
    with pytest.raises(InvalidOption, match="no Ed25519 public key"):
        read_key(b"rubbish")
