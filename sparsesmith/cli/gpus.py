"""What the commands of `sparsesmith gpus` do."""

import json
from dataclasses import asdict
from pathlib import Path

from sparsesmith.cli.columns import columns
from sparsesmith.cli.keys import redis_of
from sparsesmith.cli.visible import visible


def show_quarantine(state: Path, *, as_json: bool) -> None:
    """A line a GPU, the longest in it first."""
    from sparsesmith.transport.quarantine import Quarantine

    found = Quarantine(redis_of(state)).all()
    if as_json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    rows = [(each.uuid, each.at, each.worker, visible(each.reason)) for each in found]
    print(columns(("GPU", "since", "found by", "why"), rows))


def release_gpu(state: Path, uuid: str) -> None:
    """Raises NotFound."""
    from sparsesmith.transport.quarantine import Quarantine

    Quarantine(redis_of(state)).release(uuid)
    print(f"GPU {uuid} may be taken again")
