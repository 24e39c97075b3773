"""The files of an answer, one by one or as a zip."""

import io
import zipfile
from dataclasses import dataclass
from typing import Literal

from sparsesmith.artifacts.cpp_header import cpp_header, workload_name
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.errors import Conflict
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer
from sparsesmith_proto.kernel import Workload

ArtifactKind = Literal["cu", "hpp", "py", "json", "zip"]

_MEDIA_TYPES: dict[ArtifactKind, str] = {
    "cu": "text/x-cuda; charset=utf-8",
    "hpp": "text/x-c++hdr; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
    "json": "application/json",
    "zip": "application/zip",
}


@dataclass(frozen=True)
class Artifact:
    """One file of an answer."""

    filename: str
    media_type: str
    content: bytes


def artifact(kind: ArtifactKind, report: KernelReport, pattern: Pattern, values: FixedValues | None = None) -> Artifact:
    """The program (`cu`), the C++ header (`hpp`), the Python loader (`py`), the report (`json`) or all of them (`zip`).

    `values`: those that the workload fixes, where it does.
    Raises Conflict for `cu` and `hpp` where the answer is the vendor's routine: there is no program to hand out.
    """
    matrix = (pattern, values)
    content = _zip(report, *matrix) if kind == "zip" else _text(kind, report, *matrix).encode()
    return Artifact(artifact_name(report.workload, kind), _MEDIA_TYPES[kind], content)


def artifact_name(workload: Workload, kind: ArtifactKind) -> str:
    """File name of an artifact; the Python loader's is importable."""
    return f"kernel_{workload_name(workload)}.{kind}"


def kinds_of(report: KernelReport) -> tuple[ArtifactKind, ...]:
    """The single files that an answer has."""
    match report.answer:
        case TunedAnswer():
            return ("cu", "hpp", "py", "json")
        case LibraryAnswer():
            return ("py", "json")


def _text(kind: ArtifactKind, report: KernelReport, pattern: Pattern, values: FixedValues | None) -> str:
    match kind:
        case "cu":
            return _program(report)
        case "hpp":
            return cpp_header(_program(report), report.workload, pattern, report.device, values)
        case "py":
            return python_loader(report)
        case "json":
            return report.model_dump_json(indent=2)
        case "zip":
            raise AssertionError("a zip is not a text")


def _program(report: KernelReport) -> str:
    match report.answer:
        case TunedAnswer(best=best):
            return extract_program(best.candidate.program)
        case LibraryAnswer(routine=routine):
            raise Conflict(
                f"nothing faster than {routine} was found: there is no program to download; use the library's routine "
                "(the Python loader does)",
                field="kind",
                value=routine,
            )


def _zip(report: KernelReport, pattern: Pattern, values: FixedValues | None) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for kind in kinds_of(report):
            entry = zipfile.ZipInfo(artifact_name(report.workload, kind))  # Dated 1980: equal answers give equal files.
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, _text(kind, report, pattern, values), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
