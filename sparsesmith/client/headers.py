"""Headers that a client sends with every request: what a proxy before the server asks for, such as Authorization.

Their values may be secrets: no message repeats one.
"""

import re
from collections.abc import Iterable, Mapping

import httpx

from sparsesmith.errors import InvalidOption

HEADERS_VARIABLE = "SPARSESMITH_HEADERS"
"""Environment variable: `Name: value`, one a line."""
KEY_VARIABLE = "SPARSESMITH_KEY"
"""Environment variable: an API key, sent as `Authorization: Bearer KEY` where no other header of that name is."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")
_OF_THE_BODY = ("connection", "content-length", "content-type", "transfer-encoding")


def parsed_headers(lines: Iterable[str]) -> dict[str, str]:
    """`Name: value` of each line that is not empty; the last of a name counts. Raises InvalidOption."""
    fields = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
        elif line.strip():
            raise InvalidOption("header: no colon in it: expected 'Name: value'", field="header", limit="Name: value")
    return fields


def client_headers(
    given: Mapping[str, str] | None, environment: Mapping[str, str], key: str | None = None
) -> httpx.Headers:
    """Those of the environment, its key first, then the key and the headers given; the last of a name counts. Raises
    InvalidOption for what cannot be sent."""
    headers = httpx.Headers()
    of_the_environment = parsed_headers(environment.get(HEADERS_VARIABLE, "").splitlines())
    for fields in (_bearer(environment.get(KEY_VARIABLE)), of_the_environment, _bearer(key), given or {}):
        for name, value in fields.items():
            _check(name, value)
            headers[name] = value
    return headers


def _bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.strip()}"} if key else {}


def _check(name: str, value: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidOption(f"header: {name!r} is not the name of a header", field="header", value=name)
    if name.lower() in _OF_THE_BODY:
        raise InvalidOption(f"header: {name} is set by the client itself", field="header", value=name)
    if not _VALUE.fullmatch(value):
        raise InvalidOption(
            f"header: the value of {name} has characters that no header can carry",
            field="header",
            limit="printable ASCII",
        )
