"""The files of an answer."""

import io
import zipfile

import pytest

from sparsesmith.artifacts import ArtifactKind, artifact, artifact_name, kinds_of
from sparsesmith.errors import Conflict
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith_proto.api import KernelReport
from tests.artifacts.answers import CSR_PROGRAM, make_matrix, make_report

MATRIX = make_matrix()
PATTERN = pattern_from_scipy(MATRIX)


def test_the_program_is_taken_out_of_raw_model_text() -> None:
    report = make_report(MATRIX, f"Here it is:\n```cuda\n{CSR_PROGRAM}```\nEnjoy.")
    assert artifact("cu", report, PATTERN).content.decode() == CSR_PROGRAM


def test_the_report_comes_back_from_its_file() -> None:
    report = make_report(MATRIX)
    file = artifact("json", report, PATTERN)
    assert KernelReport.model_validate_json(file.content) == report
    assert (file.media_type, file.filename) == ("application/json", artifact_name(report.workload, "json"))


def test_names_tell_workloads_of_one_pattern_apart_and_can_be_imported() -> None:
    spmv = make_report(MATRIX).workload
    names = {
        artifact_name(spmv, "py"),
        artifact_name(spmv.model_copy(update={"element_type": "float64"}), "py"),
        artifact_name(spmv.model_copy(update={"operation": "spmm", "num_dense_cols": 4}), "py"),
        artifact_name(spmv.model_copy(update={"operation": "spmm", "num_dense_cols": 8}), "py"),
    }
    assert len(names) == 4
    assert all(name.removesuffix(".py").isidentifier() for name in names)


@pytest.mark.parametrize(("program", "kinds"), [(CSR_PROGRAM, ("cu", "hpp", "py", "json")), (None, ("py", "json"))])
def test_a_zip_holds_every_file_readable_for_its_owner(program: str | None, kinds: tuple[ArtifactKind, ...]) -> None:
    report = make_report(MATRIX, program)
    assert kinds_of(report) == kinds
    with zipfile.ZipFile(io.BytesIO(artifact("zip", report, PATTERN).content)) as archive:
        assert archive.namelist() == [artifact_name(report.workload, kind) for kind in kinds]
        for entry, kind in zip(archive.infolist(), kinds, strict=True):
            assert archive.read(entry) == artifact(kind, report, PATTERN).content
            assert entry.external_attr >> 16 == 0o644
            assert entry.compress_type == zipfile.ZIP_DEFLATED


def test_equal_answers_give_equal_zips() -> None:
    report = make_report(MATRIX)
    assert artifact("zip", report, PATTERN) == artifact("zip", report, PATTERN)


@pytest.mark.parametrize("kind", ["cu", "hpp"])
def test_there_is_no_program_to_hand_out_where_the_library_is_the_answer(kind: ArtifactKind) -> None:
    with pytest.raises(Conflict, match="nothing faster than cusparse_csr_alg2"):
        artifact(kind, make_report(MATRIX, None), PATTERN)
