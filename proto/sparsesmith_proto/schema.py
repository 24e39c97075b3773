"""JSON schemas of the messages, for those who do not speak Python.

python -m sparsesmith_proto.schema             write proto/schema/*.json
python -m sparsesmith_proto.schema --check     exit 1 where they are not what the messages say
"""

import argparse
import json
import re
import sys
from pathlib import Path

from sparsesmith_proto.api import (
    CandidatePage,
    Density,
    EvaluationOptions,
    EvaluationRequest,
    Fleet,
    JobPage,
    JobStatus,
    KernelReport,
    KernelRequest,
    Listing,
    MatrixCard,
    Permalink,
    PolicyStatus,
    Problem,
    Readiness,
    RollbackRequest,
    SigningKey,
    TaskCard,
    TaskPage,
    TaskPosting,
    TuningOptions,
)
from sparsesmith_proto.evaluation import EvaluationJob, EvaluationReport, InstantJob, InstantReport
from sparsesmith_proto.keys import ApiKey, AuditEntry
from sparsesmith_proto.message import Message
from sparsesmith_proto.policy import LogprobGap, PolicyAnnouncement, PolicyStanding, ProbeQuestion
from sparsesmith_proto.reward import RewardRecord

MESSAGES: tuple[type[Message], ...] = (
    KernelRequest,
    TuningOptions,
    EvaluationOptions,
    EvaluationRequest,
    JobStatus,
    KernelReport,
    JobPage,
    CandidatePage,
    Listing,
    MatrixCard,
    Density,
    Fleet,
    Permalink,
    SigningKey,
    Problem,
    PolicyStatus,
    Readiness,
    RollbackRequest,
    TaskCard,
    TaskPage,
    TaskPosting,
    EvaluationJob,
    EvaluationReport,
    InstantJob,
    InstantReport,
    RewardRecord,
    PolicyAnnouncement,
    ProbeQuestion,
    LogprobGap,
    PolicyStanding,
    ApiKey,
    AuditEntry,
)
"""Whatever crosses a hop as a whole."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"
FOLDER = Path(__file__).resolve().parents[1] / "schema"


def file_name(message: type[Message]) -> str:
    """`KernelRequest` -> `kernel_request.json`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower() + ".json"


def schema_text(message: type[Message]) -> str:
    """What the schema file of a message holds."""
    return json.dumps({"$schema": DIALECT, **message.model_json_schema()}, indent=2) + "\n"


def stale_files(folder: Path) -> list[str]:
    """Names of files that are missing, differ, or belong to no message."""
    expected = {file_name(message): schema_text(message) for message in MESSAGES}
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.json")}
    return sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))


def write_files(folder: Path) -> None:
    """One file a message, and no other .json file."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale_files(folder):
        (folder / name).unlink(missing_ok=True)
    for message in MESSAGES:
        (folder / file_name(message)).write_text(schema_text(message), encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sparsesmith_proto.schema", description="JSON schemas of messages")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file is stale")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files lie")
    options = parser.parse_args(arguments)
    if not options.check:
        write_files(options.folder)
        return 0
    stale = stale_files(options.folder)
    for name in stale:
        print(f"{options.folder / name} is stale: run `make schema`", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
