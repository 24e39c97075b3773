"""Signed reports: a server vouches for what it measured, and whoever has its public key finds every change.

What is signed is the report as JSON without its `signature`, whatever spaces and order of fields the file has: names
sorted, no spaces, whole numbers without a fraction. So a report may be printed anew, and none of its words or numbers
may change. The key is made at a server's first start and lies in one file.

Not protected against: whoever reads that file signs as the server, and a signature says that the server told these
numbers, not that its GPU was sound or its evaluators honest.
"""

import base64
import binascii
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import ValidationError

from sparsesmith.errors import InvalidOption, InvalidReport
from sparsesmith_proto.api import KernelReport, ReportSignature, SigningKey

PURPOSE = b"sparsesmith report 1\n"
"""Before the words that are signed: no signature of ours stands for anything else."""
KEY_FILE = "ed25519.pem"
KEY_ID_DIGITS = 16
SIGNATURE = "signature"


class Signer:
    """A server's private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = _described(key.public_key())

    def signed(self, report: KernelReport) -> KernelReport:
        """The report with its signature. The same report gets the same one."""
        words = signed_words(json.loads(report.model_dump_json()))
        text = base64.b64encode(self._key.sign(words)).decode()
        return report.model_copy(update={"signature": ReportSignature(key_id=self.public.key_id, signature=text)})


def kept_signer(folder: Path) -> Signer:
    """The key that lies in a folder, made where there is none yet, for its owner's eyes alone.

    Raises InvalidOption for a file that is no Ed25519 key: nobody's reports would be verified by another.
    """
    path = folder / KEY_FILE
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = folder / f"{KEY_FILE}.{os.getpid()}"
    if not path.exists():
        key = Ed25519PrivateKey.generate()
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(text)
        try:
            os.link(fresh, path)  # Of two that start at once one wins.
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    try:
        kept = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        kept = None
    if not isinstance(kept, Ed25519PrivateKey):
        raise InvalidOption(f"{path} is no Ed25519 key in PEM", field="signing_dir", value=path)
    return Signer(kept)


def read_key(data: bytes) -> SigningKey:
    """A public key as `GET /v1/signing-key` gives it, or as PEM. Raises InvalidOption."""
    try:
        text = SigningKey.model_validate_json(data).public_key.encode()
    except ValidationError:
        text = data
    return _described(_public(text))


def verified(data: bytes, key: SigningKey) -> KernelReport:
    """The report in a file, if it is word for word what the key signed. Raises InvalidReport, saying what is wrong."""
    try:
        fields = json.loads(data)
        report = KernelReport.model_validate(fields)
    except ValueError as error:  # A ValidationError is one.
        raise InvalidReport("this is no report of a kernel in JSON", field="report") from error
    if report.signature is None:
        raise InvalidReport(
            "the report is not signed: its server signs none, or it is no file of an answer", field=SIGNATURE
        )
    if report.signature.key_id != key.key_id:
        raise InvalidReport(
            f"the report names the key {report.signature.key_id}, and this one is {key.key_id}",
            field="key_id",
            value=report.signature.key_id,
            limit=key.key_id,
        )
    try:
        signature = base64.b64decode(report.signature.signature, validate=True)
        _public(key.public_key.encode()).verify(signature, signed_words(fields))
    except (InvalidSignature, binascii.Error) as error:
        raise InvalidReport(
            f"the report is not what key {key.key_id} signed: it was changed", field=SIGNATURE
        ) from error
    return report


def signed_words(fields: dict[str, Any]) -> bytes:
    """What is signed of a report, given as JSON's own types."""
    kept = {name: value for name, value in fields.items() if name != SIGNATURE}
    return PURPOSE + json.dumps(_plain(kept), sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _plain(value: Any) -> Any:
    """Whole numbers as integers: other languages write 5 where Python writes 5.0."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _public(text: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidOption("key: no Ed25519 public key, neither as PEM nor as /v1/signing-key gives it", field="key")
    return key


def _described(key: Ed25519PublicKey) -> SigningKey:
    digest = hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return SigningKey(key_id=digest[:KEY_ID_DIGITS], public_key=pem)
