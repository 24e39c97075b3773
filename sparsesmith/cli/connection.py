"""The server that a command talks to."""

from collections.abc import Sequence

from sparsesmith.client import Client
from sparsesmith.client.headers import parsed_headers


def connection(url: str | None, header: Sequence[str] | None) -> Client:
    """A client of the address and with the headers of the command line. Raises InvalidOption."""
    return Client(url, parsed_headers(header or ()))
