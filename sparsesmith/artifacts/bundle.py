"""The files of an answer, one by one or as a zip."""

import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from sparsesmith.artifacts.cpp_header import cpp_header, workload_name
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.errors import Conflict
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TriedCandidate, TunedAnswer
from sparsesmith_proto.kernel import Workload

ArtifactKind = Literal["cu", "hpp", "py", "json", "candidates", "zip"]

MEDIA_TYPES: dict[ArtifactKind, str] = {
    "cu": "text/x-cuda; charset=utf-8",
    "hpp": "text/x-c++hdr; charset=utf-8",
    "py": "text/x-python; charset=utf-8",
    "json": "application/json",
    "candidates": "application/json",
    "zip": "application/zip",
}

_CANDIDATES = TypeAdapter(list[TriedCandidate])


@dataclass(frozen=True)
class Artifact:
    """One file of an answer."""

    filename: str
    media_type: str
    content: bytes


def artifact(
    kind: ArtifactKind,
    report: KernelReport,
    pattern: Pattern | None,
    values: FixedValues | None = None,
    candidates: Sequence[TriedCandidate] = (),
) -> Artifact:
    """The program (`cu`), the C++ header (`hpp`), the Python loader (`py`), the report (`json`), what was tried
    (`candidates`) or all of them (`zip`).

    `pattern`: None of a task without a matrix. `values`: those that the workload fixes, where it does. `candidates`:
    where they are known. Raises Conflict for `cu` and `hpp` where the answer is the vendor's routine: there is no
    program to hand out; for `hpp` and `py` of a task.
    """
    bundle = _Bundle(report, pattern, values, candidates)
    content = bundle.zip() if kind == "zip" else bundle.text(kind).encode()
    return Artifact(artifact_name(report.workload, kind), MEDIA_TYPES[kind], content)


def artifact_name(workload: Workload, kind: ArtifactKind) -> str:
    """File name of an artifact; the Python loader's is importable."""
    suffix = "candidates.json" if kind == "candidates" else kind
    return f"kernel_{workload_name(workload)}.{suffix}"


def kinds_of(report: KernelReport) -> tuple[ArtifactKind, ...]:
    """The single files that an answer has. A header and a loader are about a matrix: a task has none."""
    is_task = report.workload.pattern is None
    match report.answer:
        case TunedAnswer():
            return ("cu", "json") if is_task else ("cu", "hpp", "py", "json")
        case LibraryAnswer():
            return ("json",) if is_task else ("py", "json")


@dataclass(frozen=True)
class _Bundle:
    report: KernelReport
    pattern: Pattern | None
    values: FixedValues | None
    candidates: Sequence[TriedCandidate]

    def text(self, kind: ArtifactKind) -> str:
        report = self.report
        match kind:
            case "cu":
                return _program(report)
            case "hpp":
                program = _program(report)
                return cpp_header(program, report.workload, self._matrix("hpp"), report.device, self.values)
            case "py":
                self._matrix("py")
                return python_loader(report)
            case "json":
                return report.model_dump_json(indent=2)
            case "candidates":
                return _CANDIDATES.dump_json(list(self.candidates), indent=2).decode()
            case "zip":
                raise AssertionError("a zip is not a text")

    def zip(self) -> bytes:
        kinds = (*kinds_of(self.report), *(("candidates",) if self.candidates else ()))
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for kind in kinds:
                # Dated 1980: equal answers give equal files.
                entry = zipfile.ZipInfo(artifact_name(self.report.workload, kind))
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, self.text(kind), zipfile.ZIP_DEFLATED)
        return buffer.getvalue()

    def _matrix(self, kind: ArtifactKind) -> Pattern:
        """Raises Conflict where there is none."""
        if self.pattern is None:
            kinds = ", ".join(kinds_of(self.report))
            raise Conflict(
                f"{self.report.workload.operation} has no matrix, and its answer no {kind} (it has: {kinds})",
                field="kind",
                value=kind,
                limit=kinds,
            )
        return self.pattern


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
