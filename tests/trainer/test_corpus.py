"""The corpus builder: what is kept, what is not, and that near-duplicates do not cross the split."""

from dataclasses import replace
from pathlib import Path

from services.trainer.offline.corpus import (
    Corpus,
    CorpusFilter,
    SourceFile,
    build_corpus,
    clean,
    drop_duplicates,
    read_folder,
    read_jsonl,
    write_jsonl,
)

LICENCE_COMMENT = "/* Copyright (c) 2020 Somebody.\n * Licensed under the Apache License. */\n"


def kernel(number: int, lines: int = 30) -> str:
    """Device code that shares no run of five words with another number's."""
    body = "\n".join(
        f"  y{number}[{number * 100 + line}] = a{number}_{line} * b{number}_{line};" for line in range(lines)
    )
    return f'extern "C" __global__ void kernel{number}(float* y{number}) {{\n{body}\n}}\n'


def make_file(text: str, **changes: str) -> SourceFile:
    return replace(SourceFile("team", "a.cu", "MIT", text), **changes)


def build(files: list[SourceFile], rules: CorpusFilter | None = None, held_out_share: float = 0.0) -> Corpus:
    return build_corpus(files, rules or CorpusFilter(), held_out_share=held_out_share)


def test_a_leading_licence_comment_is_removed_and_other_comments_stay() -> None:
    assert clean(LICENCE_COMMENT + "// What it does\nint a;\r\n") == "// What it does\nint a;\n"


def test_line_comments_with_a_licence_are_removed_up_to_the_code() -> None:
    assert clean("// SPDX-License-Identifier: MIT\n//\n\n#include <a>\n") == "#include <a>\n"


def test_tabs_and_runs_of_empty_lines_are_normalised() -> None:
    assert clean("if (a)\t\n\n\n\n\tb();") == "if (a)\n\n  b();\n"


def test_host_code_is_left_out_unless_it_is_asked_for() -> None:
    host = make_file("int main() { return 0; }\n" * 20)
    assert build([host]).left_out["no device code"] == 1
    assert len(build([host], CorpusFilter(device_code_only=False)).train) == 1


def test_a_licence_outside_the_allowed_ones_is_left_out() -> None:
    files = [make_file(kernel(1), licence="MIT"), make_file(kernel(2), licence="GPL-3.0")]
    corpus = build(files, CorpusFilter(allowed_licences=frozenset({"MIT"})))
    assert [file.licence for file in corpus.train] == ["MIT"]
    assert corpus.left_out["licence"] == 1


def test_files_that_are_short_or_tables_or_binary_are_left_out() -> None:
    table = "__global__ " + "0x12345678, " * 1000
    corpus = build([make_file("__global__"), make_file(table), make_file(kernel(1) + "\ufffd")])
    assert corpus.train == ()
    assert {reason: corpus.left_out[reason] for reason in ("size", "long lines", "characters")} == {
        "size": 1,
        "long lines": 1,
        "characters": 1,
    }


def test_a_copy_with_other_blanks_is_an_exact_duplicate() -> None:
    text = kernel(1)
    assert len(drop_duplicates([make_file(text), make_file(text.replace("\n", "\n\n"))], 0.8)) == 1


def test_a_copy_with_one_line_changed_is_a_near_duplicate_and_another_kernel_is_not() -> None:
    changed = kernel(1).replace("b1_7;", "b1_7 + 1;")
    unique = drop_duplicates([make_file(kernel(1)), make_file(changed), make_file(kernel(2))], 0.7)
    assert [file.text for file in unique] == [kernel(1), kernel(2)]


def test_the_held_out_files_depend_on_their_content_alone() -> None:
    files = [make_file(kernel(number), path=f"{number}.cu") for number in range(40)]
    corpus = build(files, held_out_share=0.3)
    again = build([make_file(file.text, path="renamed.cu") for file in reversed(files)], held_out_share=0.3)
    assert {file.text for file in corpus.held_out} == {file.text for file in again.held_out}
    assert 0 < len(corpus.held_out) < 40
    assert len(corpus.train) + len(corpus.held_out) == 40


def test_a_folder_is_read_in_path_order_with_the_licence_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b.cuh").write_text(kernel(2))
    (tmp_path / "a.cu").write_text(kernel(1))
    (tmp_path / "notes.txt").write_text("no source")
    assert list(read_folder(tmp_path, "ours", "MIT")) == [
        SourceFile("ours", "a.cu", "MIT", kernel(1)),
        SourceFile("ours", "deep/b.cuh", "MIT", kernel(2)),
    ]


def test_packed_files_come_back_as_they_were_written(tmp_path: Path) -> None:
    files = [make_file(kernel(1)), make_file("__device__ \u00e9\n", source="other")]
    for name in ("files.jsonl", "files.jsonl.xz"):
        write_jsonl(tmp_path / name, files)
        assert list(read_jsonl(tmp_path / name)) == files
