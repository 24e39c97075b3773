"""The `//@` lines and the launches they make."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.formats import FORMATS
from sparsesmith.formats.values.compressed import Compressed
from sparsesmith.formats.values.storage import VALUE_STORAGES
from sparsesmith.program.directives import Directives, ResolvedLaunch, parse_directives
from tests.matrix.patterns import parameters_of

FORMAT = "//@ format csr\n"
LAUNCH = "//@ launch spmv grid=num_rows block=32\n"


def launch_of(arguments: str) -> Directives:
    return parse_directives(f"{FORMAT}//@ launch spmv {arguments}\n")


def resolve(arguments: str, **sizes: int) -> ResolvedLaunch:
    return launch_of(arguments).launches[0].resolve(sizes)


@given(st.data())
def test_written_format_parameters_are_read_back(data: st.DataObject) -> None:
    format_ = data.draw(st.sampled_from(list(FORMATS.values())))
    parameters = data.draw(parameters_of(format_))
    written = " ".join(f"{name}={value}" for name, value in parameters.items())
    directives = parse_directives(f"//@ format {format_.name} {written}\n{LAUNCH}")
    assert (directives.format, directives.parameters) == (format_, parameters)


def test_launches_keep_their_order_and_may_stand_anywhere() -> None:
    text = "//@ launch clear grid=1 block=1\nint a;\n  //@ format csr\n" + LAUNCH
    assert [launch.kernel for launch in parse_directives(text).launches] == ["clear", "spmv"]


@given(st.text(max_size=80))
def test_any_directive_is_understood_or_refused(text: str) -> None:
    for line in (f"//@ format {text}", f"//@ launch {text}", f"//@{text}"):
        try:
            parse_directives(f"{FORMAT}{LAUNCH}{line}")
        except InvalidProgram as refusal:
            assert refusal.message


@pytest.mark.parametrize("storage", VALUE_STORAGES)
def test_a_value_storage_takes_the_place_of_the_values(storage: str) -> None:
    text = f"{FORMAT}{LAUNCH}//@  values   {storage} \n".replace("csr", "ell")
    format_ = parse_directives(text).format
    assert isinstance(format_, Compressed)
    assert (str(format_.storage), format_.name) == (storage, "ell")


@pytest.mark.parametrize("line", ["//@ values", "//@ values plain", "//@ values rows", "//@ values dictionary code=u4"])
def test_an_unknown_value_storage_is_refused_with_those_there_are(line: str) -> None:
    with pytest.raises(InvalidProgram, match="dictionary code=u8") as refusal:
        parse_directives(f"{FORMAT}{LAUNCH}{line}")
    assert refusal.value.field == "directive"


def test_values_are_stored_in_one_way_and_rows_not_in_any_format() -> None:
    with pytest.raises(InvalidProgram, match="at most one"):
        parse_directives(f"{FORMAT}{LAUNCH}//@ values constant\n//@ values float32\n")
    with pytest.raises(InvalidProgram, match="not with csr"):
        parse_directives(f"{FORMAT}{LAUNCH}//@ values rows code=u8\n")


def test_up_to_three_dimensions_and_spaces_between() -> None:
    launch = resolve("grid=ceil_div(num_rows, 8), max(2, 3) ,4 block=32,4 shared=num_rows * 4", num_rows=100)
    assert launch == ResolvedLaunch("spmv", (13, 3, 4), (32, 4, 1), 400)


@pytest.mark.parametrize(
    ("arguments", "field", "value", "limit"),
    [
        ("grid=n block=1", "grid.x", 0, "1..2147483647"),
        ("grid=n-5 block=1", "grid.x", -5, "1..2147483647"),
        ("grid=2147483647+1 block=1", "grid.x", 2**31, "1..2147483647"),
        ("grid=1,65536 block=1", "grid.y", 65536, "1..65535"),
        ("grid=1,1,65536 block=1", "grid.z", 65536, "1..65535"),
        ("grid=1 block=1,1,n+65", "block.z", 65, "1..64"),
        ("grid=1 block=n+64,32", "block", 2048, "1..1024"),
        ("grid=1 block=32 shared=n+232449", "shared", 232449, "0..232448"),
        ("grid=1 block=32 shared=n-1", "shared", -1, "0..232448"),
    ],
)
def test_a_launch_beyond_cudas_limits_is_refused(arguments: str, field: str, value: int, limit: str) -> None:
    with pytest.raises(InvalidProgram) as refusal:
        resolve(arguments, n=0)
    assert (refusal.value.field, refusal.value.value, refusal.value.limit) == (field, str(value), limit)


def test_the_limits_themselves_are_legal() -> None:
    launch = resolve("grid=2147483647,65535,65535 block=16,1,64 shared=232448")
    assert launch == ResolvedLaunch("spmv", (2147483647, 65535, 65535), (16, 1, 64), 232448)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LAUNCH, "0 `//@ format` lines"),
        (FORMAT * 2 + LAUNCH, "2 `//@ format` lines"),
        (FORMAT, "0 `//@ launch` lines"),
        (FORMAT + LAUNCH * 65, "65 `//@ launch` lines: one to 64"),
        (FORMAT + LAUNCH + "//@ stream 2\n", "line 3: unknown directive 'stream'"),
        ("//@ format csr index\n" + LAUNCH, "line 1: format parameter 'index'"),
        ("//@ format csr index=i32 index=u16\n" + LAUNCH, "given twice"),
        ("//@ format\n" + LAUNCH, "unknown format ''"),
        (FORMAT + "//@ launch spmv block=32\n", "line 2: launch spmv lacks grid="),
        (FORMAT + "//@ launch spmv grid=1\n", "line 2: launch spmv lacks block="),
        (FORMAT + "//@ launch spmv grid=1 block=1 stream=2\n", "launch key 'stream'"),
        (FORMAT + "//@ launch spmv grid=1 block=1 grid=2\n", "launch key 'grid'"),
        (FORMAT + "//@ launch spmv 7 grid=1 block=1\n", "'7' is not KEY=EXPRESSION"),
        (FORMAT + "//@ launch 2spmv grid=1 block=1\n", "'2spmv' is not the name of a kernel"),
        (FORMAT + f"//@ launch {'k' * 65} grid=1 block=1\n", "is not the name of a kernel"),
        (FORMAT + "//@ launch spmv grid=1,2,3,4 block=1\n", "has 4 dimensions"),
    ],
)
def test_a_malformed_directive_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidProgram) as refusal:
        parse_directives(text)
    assert message in refusal.value.message


def test_a_first_launch_may_start_before_the_kernel_before_it_has_ended() -> None:
    directives = parse_directives(
        "//@ format csr\n//@ launch k grid=1 block=32 dependency=programmatic\n//@ launch l grid=1 block=32"
    )
    assert [launch.resolve({}).dependency for launch in directives.launches] == ["programmatic", "full"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("//@ launch k grid=1 block=32\n//@ launch l grid=1 block=32 dependency=programmatic", "only the first launch"),
        ("//@ launch k grid=1 block=32 dependency=early", "dependency=early is unknown"),
    ],
    ids=["second launch", "unknown word"],
)
def test_no_other_dependency_is_taken(lines: str, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        parse_directives(f"//@ format csr\n{lines}")
