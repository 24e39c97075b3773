"""What the page is made of: vendored as published, small, and asking nobody else."""

import hashlib
import re
from pathlib import Path

import pytest

from services.generator.http.page_shell import FOLDER, MEDIA_TYPES, VERSION, StaticFile, static_files, version_of
from sparsesmith.families.estimates.cost import L2_BYTES_A_US

ROOT = Path(__file__).resolve().parents[2]
BUDGET_BYTES = 250 * 1000
VENDORED = {
    "highlight-cpp.js": "aa67eeacdbbda9f40ca34c59147581aef1601f19b71a55966de4ccf4246e8c31",
    "highlight.LICENSE": "6c081431591d9df696c82dc598fe1423765b8a299b200ed00b281afd0f64c490",
    "highlight.js": "67a339aa68880a40c9803def9c8cebb2225dec76230382db86e349370dee70e9",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
}
"""uPlot 1.6.32 (MIT): dist/uPlot.iife.min.js, uPlot.min.css. @highlightjs/cdn-assets 11.12.0 (BSD-3-Clause):
es/core.min.js, es/languages/cpp.min.js. As npm publishes them."""

OWN = sorted(path for path in FOLDER.rglob("*") if path.suffix in (".js", ".css") and path.parent.name != "vendor")


def test_vendored_files_are_those_that_were_published() -> None:
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (FOLDER / "vendor").iterdir()}
    assert found == VENDORED


def test_all_files_together_are_small() -> None:
    assert sum(len(file.content) for file in static_files().values()) <= BUDGET_BYTES


def test_every_file_has_a_media_type_and_any_change_is_another_version() -> None:
    files = static_files()
    assert {Path(name).suffix for name in files} <= MEDIA_TYPES.keys()
    changed = {**files, "main.js": StaticFile(files["main.js"].content + b"\n", files["main.js"].media_type)}
    renamed = {name.replace("spy.js", "spi.js"): file for name, file in files.items()}
    assert len({version_of(each) for each in (files, changed, renamed)}) == 3
    assert version_of(files) == VERSION


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_own_files_name_no_other_host_and_make_no_markup_of_text(path: Path) -> None:
    text = path.read_text()
    named = [address for address in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org/2000/svg" not in address]
    assert named == []
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text) == []


@pytest.mark.parametrize("path", [path for path in OWN if path.suffix == ".js"], ids=lambda path: path.name)
def test_what_a_module_imports_is_there(path: Path) -> None:
    for name in re.findall(r"from \"(\.[^\"]+)\"", path.read_text()):
        assert (path.parent / name).is_file()


def test_the_l2_of_the_roofline_is_that_of_the_estimates() -> None:
    found = re.search(r'"NVIDIA H200": (\d+)', (FOLDER / "roofline.js").read_text())
    assert found is not None
    assert float(found[1]) * 1e9 == L2_BYTES_A_US * 1e6


def test_the_example_that_is_shipped_is_the_one_of_the_repository() -> None:
    import gzip

    shipped = gzip.decompress((FOLDER / "examples" / "jagmesh7.mtx.gz").read_bytes())
    assert shipped == (ROOT / "examples" / "jagmesh7.mtx").read_bytes()
