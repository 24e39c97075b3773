"""Matrix files of unknown origin."""

import gzip
import io
import itertools
import tracemalloc
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.errors import InvalidMatrix, LimitExceeded, SparsesmithError
from sparsesmith.matrix.files import MatrixLimits, read_matrix, read_pattern
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from tests.matrix.patterns import patterns


def make_mtx(
    body: str = "3 3 2\n1 1 2.5\n3 2 -1\n",
    *,
    layout: str = "coordinate",
    field: str = "real",
    symmetry: str = "general",
) -> bytes:
    return f"%%MatrixMarket matrix {layout} {field} {symmetry}\n{body}".encode()


def make_npz(matrix: scipy.sparse.spmatrix, compressed: bool = True) -> bytes:
    out = io.BytesIO()
    scipy.sparse.save_npz(out, matrix, compressed=compressed)
    return out.getvalue()


def npz_of(**arrays: object) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def entries_of(pattern: Pattern, values: np.ndarray | None) -> list[tuple[int, int, float]]:
    numbers = np.ones(pattern.nnz) if values is None else values
    coo = pattern.to_scipy(numbers).tocoo()
    return list(zip(coo.row.tolist(), coo.col.tolist(), coo.data.tolist(), strict=True))


@pytest.mark.parametrize(
    ("data", "expected", "has_values"),
    [
        (make_mtx(), [(0, 0, 2.5), (2, 1, -1)], True),
        (make_mtx("% a comment\n\n3 3 1\n1 2 1e3"), [(0, 1, 1000)], True),
        (b"\xef\xbb\xbf" + make_mtx(), [(0, 0, 2.5), (2, 1, -1)], True),
        (make_mtx("3 3 2\n1 1 0\n2 2 1\n"), [(0, 0, 0), (1, 1, 1)], True),
        (make_mtx("3 3 3\n1 1 1\n2 2 1\n1 1 4\n"), [(0, 0, 5), (1, 1, 1)], True),
        (make_mtx("2 3 1\n2 3 7\n", field="integer"), [(1, 2, 7)], True),
        (make_mtx("2 3 1\n2 3 7\n", field="unsigned-integer"), [(1, 2, 7)], True),
        (make_mtx("2 3 1\n2 3 7.5\n", field="double"), [(1, 2, 7.5)], True),
        (make_mtx("2 3 1\n2 3\n", field="pattern"), [(1, 2, 1)], False),
        (make_mtx("2 3 1\n2 3 1 2\n", field="complex"), [(1, 2, 1)], False),
        (make_mtx("2 2 2\n1 1 3\n2 1 4\n", symmetry="symmetric"), [(0, 0, 3), (0, 1, 4), (1, 0, 4)], True),
        (make_mtx("2 2 1\n2 1 4\n", symmetry="skew-symmetric"), [(0, 1, -4), (1, 0, 4)], True),
        (make_mtx("2 2 1\n2 1 4 1\n", field="complex", symmetry="hermitian"), [(0, 1, 1), (1, 0, 1)], False),
        (make_mtx().replace(b"coordinate", b"Coordinate").replace(b"\n", b"\r\n"), [(0, 0, 2.5), (2, 1, -1)], True),
    ],
)  # fmt: skip
def test_matrix_market_is_read(data: bytes, expected: list[tuple[int, int, float]], has_values: bool) -> None:
    for name, content in (("a.mtx", data), ("A.MTX", data), ("a.mtx.gz", gzip.compress(data))):
        pattern, values = read_matrix(content, name)
        assert entries_of(pattern, values) == expected
        assert (values is not None) == has_values
        assert read_pattern(content, name).digest == pattern.digest


@settings(max_examples=30, deadline=None)
@given(pattern=patterns(), kind=st.sampled_from(["csr", "csc", "coo", "bsr", "dia"]), seed=st.integers(0, 99))
def test_what_scipy_writes_is_read_back(pattern: Pattern, kind: str, seed: int) -> None:
    values = np.random.default_rng(seed).uniform(1, 2, pattern.nnz)
    matrix = pattern.to_scipy(values)
    mtx = io.BytesIO()
    scipy.io.mmwrite(mtx, matrix, precision=17)
    # SciPy would fill almost full blocks with zeros, which count as nonzeros.
    stored = matrix.tobsr(blocksize=(1, 1)) if kind == "bsr" else matrix.asformat(kind)
    for name, data in (("m.mtx", mtx.getvalue()), ("m.npz", make_npz(stored))):
        restored, restored_values = read_matrix(data, name)
        assert restored.digest == pattern.digest
        assert read_pattern(data, name).digest == pattern.digest
        assert restored_values is not None
        np.testing.assert_array_equal(restored_values, values)


def test_a_path_is_read_as_its_bytes_are(tmp_path: Path) -> None:
    for name, data in (("a.mtx", make_mtx()), ("a.mtx.gz", gzip.compress(make_mtx()))):
        path = tmp_path / "upload"
        path.write_bytes(data)
        assert read_matrix(path, name)[0].digest == read_matrix(data, name)[0].digest


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a Matrix Market banner"),
        (b"%%MatrixMarkt matrix coordinate real general\n", "not a Matrix Market banner"),
        (make_mtx(layout="array"), "format 'array' is not supported (coordinate)"),
        (make_mtx(field="quaternion"), "field 'quaternion' is not supported"),
        (make_mtx(symmetry="diagonal"), "symmetry 'diagonal' is not supported"),
        (make_mtx("% only\n"), "ends before its size line"),
        (make_mtx("3 3\n1 1 1\n"), "size line '3 3' is not"),
        (make_mtx("3 3 -1\n1 1 1\n"), "size line '3 3 -1' is not"),
        (make_mtx("0 3 1\n1 1 1\n"), "num_rows is 0"),
        (make_mtx("3 3 0\n"), "nnz is 0"),
        (make_mtx("3 4 1\n1 1 1\n", symmetry="symmetric"), "is square, this one is 3 x 4"),
        (make_mtx("3 3 2\n1 1 2\n4 2 1\n"), "row index 4 of entry 2 is out of bounds"),
        (make_mtx("3 3 2\n1 1 2\n0 2 1\n"), "row index 0 of entry 2 is out of bounds"),
        (make_mtx("3 3 2\n1 1 2\n2 -2 1\n"), "column index -2 of entry 2 is out of bounds"),
        (make_mtx("3 3 2\n1 1 2\n2 b 1\n"), "'b' to int64 at entry 2, column 2"),
        (make_mtx("3 3 2\n1.5 1 2\n2 2 1\n"), "'1.5' to int64 at entry 1, column 1"),
        (make_mtx("3 3 2\n1 1 x\n2 2 1\n"), "'x' to float64 at entry 1, column 3"),
        (make_mtx("3 3 2\n1 1\n2 2 1\n"), "entry 1 has 2 columns instead of 3"),
        (make_mtx("3 3 2\n1 99999999999999999999 1\n2 2 1\n"), "'99999999999999999999' to int64 at entry 1"),
        (make_mtx("3 3 2\n1 1 2\n2 2 nan\n"), "entry 2 has the value nan"),
        (make_mtx("3 3 2\n1 1 -inf\n2 2 1\n"), "entry 1 has the value -inf"),
        (make_mtx("3 3 2\n1 1 1e308\n1 1 1e308\n"), "sum of duplicates at nonzero 0 has the value inf"),
        (make_mtx("3 3 3\n1 1 2.000000000\n2 2 1\n"), "announces 3 entries, the file has 2"),
        (make_mtx("3 3 1\n1 1 2\n2 2 1\n"), "announces 1 entries, the file has more"),
        (make_mtx("3 3 900000\n1 1 2\n2 2 1\n"), "announces 900000 entries"),
        (make_mtx("%" + "x" * 70_000 + "\n3 3 1\n1 1 2\n"), "longer than 65536 bytes"),
    ],
)
def test_a_matrix_market_file_that_is_none_is_refused(data: bytes, message: str) -> None:
    for name, content in (("a.mtx", data), ("a.mtx.gz", gzip.compress(data))):
        with pytest.raises(InvalidMatrix) as refusal:
            read_matrix(content, name)
        assert message in refusal.value.message


GOOD = scipy.sparse.random(30, 20, 0.2, format="csr", random_state=1)


def damaged(change: Callable[[scipy.sparse.csr_matrix], None]) -> bytes:
    matrix = GOOD.copy()
    change(matrix)
    return make_npz(matrix)


def set_index(matrix: scipy.sparse.csr_matrix) -> None:
    matrix.indices[3] = 1_000_000


def set_negative_index(matrix: scipy.sparse.csr_matrix) -> None:
    matrix.indices[3] = -1


def set_offset(matrix: scipy.sparse.csr_matrix) -> None:
    matrix.indptr[3] = 10_000


def set_nan(matrix: scipy.sparse.csr_matrix) -> None:
    matrix.data[4] = np.nan


CSR = {"format": b"csr", "shape": (1, 1), "indices": [0], "indptr": [0, 1]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK not a zip", "damaged .npz"),
        (make_npz(GOOD)[:-30], "damaged .npz"),
        (make_npz(GOOD)[:200] + b"\xff" * 20 + make_npz(GOOD)[220:], "damaged .npz"),
        (damaged(set_index), "indices must be < 20"),
        (damaged(set_negative_index), "indices must be >= 0"),
        (damaged(set_offset), "non-decreasing"),
        (damaged(set_nan), "data: entry 4 has the value nan"),
        (npz_of(a=np.arange(3)), "format '' is not a sparse format"),
        (npz_of(**{**CSR, "format": b"lil"}, data=[1.0]), "format 'lil' is not a sparse format"),
        (npz_of(**CSR), "csr matrix without data.npy"),
        (npz_of(**CSR, data=np.array([{}], object)), "arrays of object are not read"),
        (npz_of(**CSR, data=np.array(["x"])), "data has the type"),
        (npz_of(**CSR, data=[1.0, 2.0]), "indices and data should have the same size"),
        (npz_of(**{**CSR, "indices": [0.5]}, data=[1.0]), "indices: expected a list of whole numbers"),
        (npz_of(**{**CSR, "shape": (1, 1, 1)}, data=[1.0]), "shape: expected two whole numbers"),
        (npz_of(**{**CSR, "shape": (-1, 1)}, data=[1.0]), "num_rows is -1"),
        (npz_of(format=b"coo", shape=(2, 2), row=[5], col=[0], data=[1.0]), "exceeds matrix"),
        (npz_of(**CSR, data=np.zeros(1, "V0")), "arrays of |V0 are not read"),
        (npz_of(format=b"dia", shape=(4, 4), offsets=[2**40], data=np.ones((1, 4))), "diagonal 1099511627776 lies"),
        (
            npz_of(format=b"bsr", shape=(5, 5), indptr=[0, 1, 1], indices=[0], data=np.ones((1, 2, 2))),
            "blocks of 2 x 2 do not divide a matrix of 5 x 5",
        ),
    ],
)
def test_an_npz_file_that_is_no_matrix_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidMatrix) as refusal:
        read_matrix(data, "a.npz")
    assert message in refusal.value.message


def test_an_array_that_claims_more_than_the_archive_holds_is_refused() -> None:
    header = io.BytesIO()
    claims = {"descr": "<f8", "fortran_order": False, "shape": (2**26,)}
    np.lib.format.write_array_header_1_0(header, claims)  # type: ignore[no-untyped-call]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data.npy", header.getvalue())
    with pytest.raises(InvalidMatrix, match="67108864 values announced"):
        read_matrix(out.getvalue(), "a.npz")


@pytest.mark.parametrize(
    ("data", "name", "limits", "field", "limit"),
    [
        (make_mtx(), "a.mtx", MatrixLimits(max_file_bytes=50), "file size in bytes", "50"),
        (make_mtx(), "a.mtx", MatrixLimits(max_nnz=1), "nnz", "1"),
        (make_mtx(), "a.mtx", MatrixLimits(max_rows=2), "num_rows", "2"),
        (make_mtx(), "a.mtx", MatrixLimits(max_cols=2), "num_cols", "2"),
        (make_mtx("2 2 2\n1 1 3\n2 1 4\n", symmetry="symmetric"), "a.mtx", MatrixLimits(max_nnz=2), "nnz", "2"),
        (make_npz(GOOD), "a.npz", MatrixLimits(max_nnz=119), "nnz", "119"),
        (make_npz(GOOD), "a.npz", MatrixLimits(max_rows=29), "num_rows", "29"),
        (npz_of(**dict.fromkeys("abcdefghijklmnopqr", 1)), "a.npz", MatrixLimits(), "members of the archive", "16"),
    ],
)
def test_a_limit_is_named_with_the_value_beyond_it(
    data: bytes, name: str, limits: MatrixLimits, field: str, limit: str
) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        read_matrix(data, name, limits)
    assert (refusal.value.field, refusal.value.limit) == (field, limit)


BOMB_BYTES = 1 << 28


@pytest.mark.parametrize(
    ("name", "bomb"),
    [
        ("a.mtx.gz", gzip.compress(make_mtx() + b"\n" * BOMB_BYTES, 1)),
        ("a.npz", npz_of(**CSR, data=np.zeros(BOMB_BYTES // 8))),
    ],
    ids=["gzip", "zip"],
)
def test_a_bomb_is_stopped_at_the_limit_without_its_memory(name: str, bomb: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match="decompressed size"):
            read_matrix(bomb, name, MatrixLimits(max_decompressed_bytes=1 << 25))
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("bomb", "field", "limit"),
    [
        (gzip.compress(make_mtx() + b" " * (24 << 20), 9), "decompressed size in bytes", (16 << 20) + 100 * 24_000),
        (gzip.compress(make_mtx()) + 4000 * gzip.compress(b""), "members of the gzip file", 64 + 80_000 // 256),
    ],
    ids=["one large member", "thousands of empty members"],
)
def test_a_file_that_grows_as_no_text_does_is_given_up_early(bomb: bytes, field: str, limit: int) -> None:
    with pytest.raises(LimitExceeded) as refusal:
        read_matrix(bomb, "a.mtx.gz")
    assert refusal.value.field == field
    assert int(refusal.value.limit or 0) == pytest.approx(limit, rel=0.1)
    assert int(refusal.value.value or 0) <= int(refusal.value.limit or 0) + (1 << 20), "it is not read any further"


def test_blocks_and_padding_of_other_writers_of_gzip_are_read() -> None:
    text = make_mtx("3000 3000 3000\n" + "".join(f"{row} {row} 1.5\n" for row in range(1, 3001)))
    blocks = b"".join(gzip.compress(text[start : start + 4096]) for start in range(0, len(text), 4096))
    for content in (blocks, blocks + bytes(512)):
        assert read_pattern(content, "a.mtx.gz").nnz == 3000


ODD_SHAPES = (
    f"({'1,' * 70})", f"(0, {10**24})", f"(0, {2**63 - 1}, 8)", "(True, 2)", "()", "(3.0,)", "None", "(1, 1, 3)",
    "(-1,)", "(0, 0, 0)", f"({'1' * 5000},)", "(" * 150 + ")" * 150, "-" * 3000 + "1", "(1e400,)", "{}", "'''",
)  # fmt: skip
ODD_TYPES = ("'<f8'", "('<i4', (2,))", "[('a', '<f8')]", "'|O'", "'<U3'", "'<M8[s]'", "'<f16'", "''", "5", "b'f8'")
FORMATS = {
    "csr": {"format": "csr", "shape": [3, 3], "indptr": [0, 1, 2, 3], "indices": [0, 1, 2], "data": [1.0, 2, 3]},
    "coo": {"format": "coo", "shape": [3, 3], "row": [0, 1, 2], "col": [0, 1, 2], "data": [1.0, 2, 3]},
    "dia": {"format": "dia", "shape": [3, 3], "offsets": [0], "data": [[1.0, 2, 3]]},
    "bsr": {"format": "bsr", "shape": [2, 2], "indptr": [0, 1], "indices": [0], "data": [[[1.0, 2], [3, 4]]]},
}


def archive_of(arrays: Mapping[str, object], compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    """Of arrays, some of whose members are given as bytes."""
    written = zipfile.ZipFile(io.BytesIO(npz_of(**arrays)))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", compression) as archive:
        for name in written.namelist():
            archive.writestr(name, members.get(name.removesuffix(".npy"), written.read(name)))
    return content.getvalue()


@pytest.mark.parametrize(
    "letters",
    [b"\xff\xff\xff\xff", b"\x00\xd8\x00\x00", b"\x00\x00\x00\x80" * 3, b"c\0\0\0" * 9000],
    ids=["beyond the last character", "half a pair", "negative", "long"],
)
def test_a_format_that_is_no_text_is_an_error_of_ours_that_json_can_tell(letters: bytes) -> None:
    header = f"{{'descr': '<U{len(letters) // 4}', 'fortran_order': False, 'shape': ()}}".encode()
    member = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + letters
    with pytest.raises(InvalidMatrix, match="is not a sparse format") as refusal:
        read_matrix(archive_of(FORMATS["csr"], format=member), "a.npz")
    refusal.value.message.encode()
    assert len(f"{refusal.value.message}{refusal.value.value}".encode()) < 300


def test_a_format_in_big_endian_text_is_read() -> None:
    pattern, _ = read_matrix(npz_of(**{**FORMATS["csr"], "format": np.array("csr", ">U3")}), "a.npz")
    assert pattern.nnz == 3


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressions_that_numpy_does_not_write_are_refused(compression: int) -> None:
    with pytest.raises(InvalidMatrix, match="only deflate is read") as refusal:
        read_matrix(archive_of(FORMATS["csr"], compression), "a.npz")
    assert refusal.value.limit == "stored, deflate"


def test_an_offset_before_the_archive_is_damage() -> None:
    content = bytearray(make_npz(GOOD, compressed=False))
    directory = content.index(b"PK\1\2")
    content[directory + 42 : directory + 46] = b"\xff" * 4  # Where the first member begins.
    with pytest.raises(InvalidMatrix, match=r"damaged \.npz"):
        read_matrix(bytes(content), "a.npz")


def npy_member(shape: str, kind: str) -> bytes:
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24)


@pytest.mark.parametrize("kind", ODD_TYPES)
@pytest.mark.parametrize("name", FORMATS)
def test_a_member_of_odd_shape_or_type_is_an_error_of_ours(name: str, kind: str) -> None:
    for member, shape in itertools.product(FORMATS[name], ODD_SHAPES):
        out = io.BytesIO(npz_of(**FORMATS[name]))
        members = {entry.filename: zipfile.ZipFile(out).read(entry) for entry in zipfile.ZipFile(out).infolist()}
        members[f"{member}.npy"] = npy_member(shape, kind)
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as archive:
            for filename, data in members.items():
                archive.writestr(filename, data)
        for read in (read_matrix, read_pattern):
            with pytest.raises(SparsesmithError) as refusal:
                read(content.getvalue(), "a.npz")
            assert refusal.value.field


@pytest.mark.parametrize("cut", [1, 9, 20])
def test_a_truncated_gzip_file_is_refused(cut: int) -> None:
    with pytest.raises(InvalidMatrix, match="damaged gzip data"):
        read_matrix(gzip.compress(make_mtx())[:-cut], "a.mtx.gz")


def test_other_files_are_refused_with_the_kinds_there_are() -> None:
    with pytest.raises(InvalidMatrix) as refusal:
        read_matrix(b"", "matrix.mat")
    assert (refusal.value.value, refusal.value.limit) == ("matrix.mat", ".mtx, .mtx.gz, .npz")


FILES = {"a.mtx": make_mtx(), "a.mtx.gz": gzip.compress(make_mtx()), "a.npz": make_npz(GOOD, compressed=False)}


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_anywhere_gives_a_matrix_or_an_error_of_ours(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FILES)))
    content = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content) - 1))
        content[position] = data.draw(st.integers(0, 255))
    limits = MatrixLimits(max_rows=10_000, max_cols=10_000, max_nnz=10_000, max_decompressed_bytes=1 << 20)
    try:
        pattern, values = read_matrix(bytes(content), name, limits)
    except SparsesmithError as refusal:
        assert refusal.message
    else:
        assert pattern_from_scipy(pattern.to_scipy(np.ones(pattern.nnz))).digest == pattern.digest
        assert values is None or values.size == pattern.nnz


def test_a_bad_entry_far_into_a_file_is_named_by_its_number() -> None:
    lines = [f"{row} {row}" for row in range(1, 300_001)]
    lines[270_000] = "270001 300001"
    file = "%%MatrixMarket matrix coordinate pattern general\n300000 300000 300000\n" + "\n".join(lines)
    with pytest.raises(InvalidMatrix, match="column index 300001 of entry 270001 is out of bounds"):
        read_matrix(file.encode(), "a.mtx")
    lines[270_000] = "270001 1"
    good = "%%MatrixMarket matrix coordinate pattern general\n300000 300000 300000\n" + "\n".join(lines)
    pattern, values = read_matrix(good.encode(), "a.mtx")
    assert values is None
    assert pattern.nnz == 300_000
    assert pattern.col_indices[[269_999, 270_000, 270_001]].tolist() == [269_999, 0, 270_001]
