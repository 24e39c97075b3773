"""The files of an answer, one by one or as a zip."""

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from sparsesmith.artifacts.cpp_header import cpp_header, workload_name
from sparsesmith.artifacts.python_loader import program_loader, python_loader
from sparsesmith.artifacts.task_header import task_header
from sparsesmith.errors import Conflict
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.values import FixedValues
from sparsesmith.operations import operation_named
from sparsesmith.operations.operation import operands_with_role
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import InstantKernel, KernelReport, LibraryAnswer, TriedCandidate, TunedAnswer
from sparsesmith_proto.kernel import DeviceDescription, Workload

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
    where they are known. Raises Conflict for `cu` and `hpp` where the answer is what it was compared with: there is no
    program to hand out.
    """
    bundle = _Bundle(report, pattern, values, candidates)
    content = bundle.zip() if kind == "zip" else bundle.text(kind).encode()
    return Artifact(artifact_name(report.workload, kind), MEDIA_TYPES[kind], content)


def instant_artifact(
    kind: ArtifactKind,
    kernel: InstantKernel,
    pattern: Pattern | None,
    values: FixedValues | None = None,
) -> Artifact:
    """A file of a kernel that was handed out before the search: as `artifact`, the report being what is known of it.

    Raises Conflict for `candidates`: none is graded yet.
    """
    program, workload = extract_program(kernel.candidate.program), kernel.workload
    single: dict[ArtifactKind, Callable[[], str]] = {"cu": lambda: program}
    if _is_launched(workload):
        single["hpp"] = lambda: _header(program, workload, kernel.device, pattern, values)
        single["py"] = lambda: program_loader(program, workload, kernel.device)
    single["json"] = lambda: kernel.model_dump_json(indent=2)
    if kind == "zip":
        content = zipped({artifact_name(workload, each): write() for each, write in single.items()})
    elif kind in single:
        content = single[kind]().encode()
    else:
        kinds = ", ".join(single)
        raise Conflict(
            f"a kernel that was handed out before the search has no {kind} (it has: {kinds})",
            field="kind",
            value=kind,
            limit=kinds,
        )
    return Artifact(artifact_name(workload, kind), MEDIA_TYPES[kind], content)


def zipped(files: Mapping[str, str]) -> bytes:
    """Dated 1980: equal files give equal archives."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def artifact_name(workload: Workload, kind: ArtifactKind) -> str:
    """File name of an artifact; the Python loader's is importable."""
    suffix = "candidates.json" if kind == "candidates" else kind
    return f"kernel_{workload_name(workload)}.{suffix}"


def kinds_of(report: KernelReport) -> tuple[ArtifactKind, ...]:
    """The single files that an answer has: header and loader are of tasks, and of a matrix with one operand."""
    is_launched = _is_launched(report.workload)
    match report.answer:
        case TunedAnswer():
            return ("cu", "hpp", "py", "json") if is_launched else ("cu", "json")
        case LibraryAnswer():
            return ("py", "json") if is_launched else ("json",)


def _is_launched(workload: Workload) -> bool:
    """Whether header and loader know its operands: a task's, or a matrix and one more."""
    operation = operation_named(workload.operation)
    return workload.pattern is None or len(operands_with_role(operation, "input")) == 1


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
                self._check_launched(kind)
                return _header(_program(report), report.workload, report.device, self.pattern, self.values)
            case "py":
                self._check_launched(kind)
                return python_loader(report)
            case "json":
                return report.model_dump_json(indent=2)
            case "candidates":
                return _CANDIDATES.dump_json(list(self.candidates), indent=2).decode()
            case "zip":
                raise AssertionError("a zip is not a text")

    def zip(self) -> bytes:
        kinds = (*kinds_of(self.report), *(("candidates",) if self.candidates else ()))
        return zipped({artifact_name(self.report.workload, kind): self.text(kind) for kind in kinds})

    def _check_launched(self, kind: ArtifactKind) -> None:
        """Raises Conflict."""
        if not _is_launched(self.report.workload):
            kinds = ", ".join(kinds_of(self.report))
            raise Conflict(
                f"{self.report.workload.operation} has no single operand, and its answer no {kind} (it has: {kinds})",
                field="kind",
                value=kind,
                limit=kinds,
            )


def _header(
    program: str,
    workload: Workload,
    device: DeviceDescription,
    pattern: Pattern | None,
    values: FixedValues | None,
) -> str:
    if pattern is None:
        return task_header(program, workload, device)
    return cpp_header(program, workload, pattern, device, values)


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
