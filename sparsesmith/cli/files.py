"""Files that a user names. What cannot be read or written is an OSError, which `main` turns into one line."""

from pathlib import Path

from sparsesmith.artifacts import artifact_name, kinds_of
from sparsesmith.client import Client
from sparsesmith.errors import InvalidProgram
from sparsesmith_proto.api import KernelReport


def matrix_file(path: Path) -> tuple[str, bytes]:
    """Name and bytes of a matrix file."""
    return path.name, path.read_bytes()


def program_file(path: Path) -> str:
    """Text of a kernel program. Raises InvalidProgram where it is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise InvalidProgram(
            f"{path} is not UTF-8 text: byte {error.start}", field="program", value=error.start, limit="UTF-8"
        ) from error


def save_artifacts(client: Client, job_id: str, report: KernelReport, folder: Path) -> list[Path]:
    """Write the files of an answer into the folder, which is there; their paths."""
    paths = []
    reports = (report,) if report.transposed is None else (report, report.transposed)
    for each in reports:
        for kind in kinds_of(each):
            path = folder / artifact_name(each.workload, kind)
            path.write_bytes(client.artifact(job_id, kind, transposed=each is not report))
            paths.append(path)
    return paths
