"""What the commands of `sparsesmith keys` do: they change Redis itself, so that no key can be made over HTTP."""

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from sparsesmith.cli.columns import columns
from sparsesmith.cli.terminal import errors
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith_proto.keys import ApiKey, AuditEntry, Quotas

if TYPE_CHECKING:
    from sparsesmith.transport.accounts import Used
    from sparsesmith.transport.connection import Redis

KEYS = ("id", "name", "jobs", "evaluator s today", "MB today", "requests a min", "made", "state")
LINES = ("at", "who", "from", "what", "job", "of")
ADDRESS_VARIABLES = ("SPARSESMITH_REDIS_URL", "REDIS_URL")
SECRETS_VARIABLE = "SPARSESMITH_SECRETS_DIR"
MEGABYTE = 1e6


def create_key(state: Path, name: str, given: Mapping[str, float], *, as_json: bool) -> None:
    """Prints the key to standard output, what to do with it to standard error."""
    from sparsesmith.transport.keys import KeyStore

    try:
        quotas = Quotas.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = str(first["loc"][0])
        raise InvalidOption(f"{field}: {first['msg']}", field=field, value=first["input"]) from error
    key, text = KeyStore(redis_of(state)).create(name, quotas)
    if as_json:
        print(f'{{"key": "{text}", "record": {key.model_dump_json()}}}')
        return
    print(text)
    errors.print(f"key {key.key_id} of {key.name}: shown this once; use it as SPARSESMITH_KEY", highlight=False)


def show_keys(state: Path, *, as_json: bool) -> None:
    """A line a key, the oldest first."""
    from sparsesmith.transport.accounts import Accounts
    from sparsesmith.transport.keys import KeyStore

    connection = redis_of(state)
    accounts = Accounts(connection)
    keys = [(key, accounts.used(key.key_id)) for key in KeyStore(connection).all()]
    if as_json:
        print(f"[{', '.join(key.model_dump_json() for key, _ in keys)}]")
        return
    print(columns(KEYS, [_row(key, used) for key, used in keys], right=KEYS[2:6]))


def revoke_key(state: Path, name_or_id: str, *, as_json: bool) -> None:
    """From now on it opens nothing."""
    from sparsesmith.transport.keys import KeyStore

    key = KeyStore(redis_of(state)).revoke(name_or_id)
    print(key.model_dump_json() if as_json else f"key {key.key_id} of {key.name} is revoked")


def show_audit(state: Path, limit: int, *, as_json: bool) -> None:
    """The newest lines of the audit log, the newest last."""
    from sparsesmith.transport.audit import AuditLog

    entries = AuditLog(redis_of(state)).newest(limit)
    if as_json:
        for entry in entries:
            print(entry.model_dump_json())
        return
    print(columns(LINES, [_line(entry) for entry in entries]))


def redis_address(state: Path, environment: Mapping[str, str]) -> str:
    """Where the server keeps its keys: as the services are told, else the embedded Valkey of a stack that runs here.

    Raises Unavailable.
    """
    told = next((environment[name] for name in ADDRESS_VARIABLES if environment.get(name)), None)
    files = [state / "valkey" / "address"]
    if environment.get(SECRETS_VARIABLE):
        files.insert(0, Path(environment[SECRETS_VARIABLE]) / ADDRESS_VARIABLES[0])
    told = told or next((file.read_text().strip() for file in files if file.is_file()), None)
    if told is None:
        raise Unavailable(
            f"no server's Redis is known here: start the stack, or name its folder with --state (there is no "
            f"{files[-1]}), or its address in {ADDRESS_VARIABLES[0]}",
            field="state",
            value=state,
        )
    return told


def redis_of(state: Path) -> "Redis":
    """Of the server that this machine reaches. Raises Unavailable."""
    if importlib.util.find_spec("redis") is None:
        raise Unavailable("this command needs Redis's client: pip install 'sparsesmith[stack]'")
    from sparsesmith.transport.connection import connect

    return connect(redis_address(state, os.environ))


def _row(key: ApiKey, used: "Used") -> tuple[str, ...]:
    quotas = key.quotas
    return (
        key.key_id,
        key.name,
        f"{used.unfinished_jobs} of {quotas.unfinished_jobs}",
        f"{used.evaluator_seconds:.0f} of {quotas.evaluator_seconds_a_day:.0f}",
        f"{used.num_bytes / MEGABYTE:.0f} of {quotas.bytes_a_day / MEGABYTE:.0f}",
        str(quotas.requests_a_minute),
        key.created_at,
        "opens" if key.revoked_at is None else f"revoked {key.revoked_at}",
    )


def _line(entry: AuditEntry) -> tuple[str, ...]:
    who = entry.name or "-"
    return (entry.at, who, entry.client or "-", entry.action.replace("_", " "), entry.job_id or "-", entry.detail)
