"""A copy of a local stack's state that another can start from: jobs, answers, keys, matrices, weights, checkpoints.

Valkey is asked for a snapshot while it runs (one that does not run is started for it); folders are copied after that,
so that every announced version's weights are among them and no acknowledged record lacks its checkpoint. Files that
services write are renamed into place, so each copy is whole.

Not protected against: a copy is as secret as the state (keys' hashes, permalinks, the key of signed reports) and is not
encrypted.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sparsesmith.errors import Conflict, InvalidInput, NotFound, Unavailable
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.transport.connection import Redis, answering, connect, is_answering

FOLDERS = ("policy", "trainer", "signing")
"""Of a state folder, beside Valkey's; logs and GPUs' locks are not copied."""
SNAPSHOT = "valkey.rdb"
CONTENTS = "backup.json"
APPEND_ONLY = "appendonly.aof"
SNAPSHOT_S = 600.0
LOOK_S = 0.05


@dataclass(frozen=True)
class Contents:
    """What a backup says of itself."""

    release: str
    made_at: str
    files: dict[str, str]
    """Path within the backup -> SHA-256."""


_CONTENTS = TypeAdapter(Contents)


def back_up(state: Path, target: Path, release: str) -> Contents:
    """Copies a state folder into a new one; `release`: of who copies it. Raises NotFound where there is no state,
    Conflict for a target that is not empty, Unavailable where Valkey cannot write its snapshot."""
    if not (state / "valkey").is_dir():
        raise NotFound(f"{state} is no state folder: it has no valkey/", field="state", value=state)
    _make_empty(target)
    with _server(state / "valkey") as connection:
        _snapshot(connection, target / SNAPSHOT)
    for name in FOLDERS:
        if (state / name).is_dir():
            shutil.copytree(state / name, target / name, copy_function=_copy_if_there)
    made_at = datetime.now(UTC).isoformat(timespec="seconds")
    contents = Contents(release, made_at, {name: _sha256(target / name) for name in _names(target)})
    (target / CONTENTS).write_text(json.dumps(asdict(contents), indent=1) + "\n")
    return contents


def restore(source: Path, state: Path) -> Contents:
    """Makes a new state folder of a backup. Raises NotFound for what is none, InvalidInput for a damaged one, Conflict
    for a state that is there: somebody's jobs may be in it."""
    try:
        contents = _CONTENTS.validate_json((source / CONTENTS).read_bytes())
    except (OSError, ValidationError) as error:
        raise NotFound(f"{source} is no backup: it has no {CONTENTS} that can be read", field="backup") from error
    _check(source, contents)
    for name in ("valkey", *FOLDERS):
        if (state / name).is_dir() and any((state / name).iterdir()):
            raise Conflict(
                f"{state / name} is there already: restore into a new state folder", field="state", value=state
            )
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in FOLDERS:
        if (source / name).is_dir():
            shutil.copytree(source / name, state / name, dirs_exist_ok=True)
    _lay_down(source / SNAPSHOT, state / "valkey")
    return contents


def _lay_down(snapshot: Path, valkey: Path) -> None:
    """As the first part of an append-only file: Valkey reads that alone, and no snapshot beside it. Whole or not
    there: without the manifest nothing is read."""
    folder = valkey / "appendonlydir"
    folder.mkdir(parents=True)
    base = f"{APPEND_ONLY}.1.base.rdb"
    shutil.copyfile(snapshot, folder / base)
    (folder / f"{APPEND_ONLY}.manifest").write_text(f"file {base} seq 1 type b\n")


@contextmanager
def _server(folder: Path) -> Iterator[Redis]:
    """The Valkey of a folder: the one that runs, else one for this moment."""
    address = folder / "address"
    connection = connect(address.read_text().strip()) if address.is_file() else None
    if connection is not None and is_answering(connection):
        yield connection
        return
    server = EmbeddedValkey(folder)
    server.start()
    try:
        yield connect(server.address)
    finally:
        server.stop()


def _snapshot(connection: Redis, target: Path) -> None:
    with answering():
        folder = Path(connection.config_get("dir")["dir"])
        written = folder / connection.config_get("dbfilename")["dbfilename"]
        before = connection.info("persistence")["rdb_saves"]
        connection.bgsave(schedule=True)
        end = time.monotonic() + SNAPSHOT_S
        # The number rises when one begins.
        while (state := connection.info("persistence"))["rdb_saves"] == before or state["rdb_bgsave_in_progress"]:
            if time.monotonic() > end:
                raise Unavailable(f"no snapshot within {SNAPSHOT_S:g} s", field="state", value=folder)
            time.sleep(LOOK_S)
        if state["rdb_last_bgsave_status"] != "ok":
            raise Unavailable(f"Valkey wrote no snapshot; see {folder / 'valkey.log'}", field="state", value=folder)
    shutil.copyfile(written, target)
    written.unlink()  # It would lie beside the append-only file for nothing.


def _check(source: Path, contents: Contents) -> None:
    """Every file is there and as it was copied."""
    for name, digest in contents.files.items():
        path = source / name
        if not path.is_file() or path.is_symlink() or _sha256(path) != digest:
            raise InvalidInput(
                f"{path} is missing or damaged: this backup cannot be restored", field="backup", value=name
            )
    if SNAPSHOT not in contents.files:
        raise InvalidInput(f"{source / CONTENTS} names no {SNAPSHOT}", field="backup", value=SNAPSHOT)


def _make_empty(target: Path) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(target.iterdir()):
        raise Conflict(f"{target} is not empty: name a new folder for each backup", field="backup", value=target)


def _copy_if_there(source: str, target: str) -> None:
    """A file that is removed meanwhile is old: what took its place is copied under its own name."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        if Path(source).exists():
            raise


def _names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
