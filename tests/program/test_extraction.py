"""The program in a model's answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparsesmith.errors import InvalidProgram
from sparsesmith.program.extraction import extract_program
from tests.program.programs import make_program

PROGRAM = make_program(before="#include <cuda_fp16.h>\n__device__ int one() { return '}' - '|'; }\n")
DRAFT = make_program(launch="//@ launch spmv grid=1 block=32")

ANSWERS = {
    "by itself": PROGRAM,
    "without a line break at the end": PROGRAM.rstrip(),
    "in a fence": f"Here's the kernel:\n\n```cuda\n{PROGRAM}```\n\nIt's fast {{really}}.",
    "in an indented fence of tildes": f"  ~~~\n{PROGRAM}  ~~~\n",
    "in a fence that is not closed": f"```cpp\n{PROGRAM}",
    "behind a fence without a program": f"```sh\nmake\n```\nThen\n```cuda\n{PROGRAM}```",
    "before a closing fence": f"{PROGRAM}```\nThe kernel uses {{one}} thread a row.",
    "before prose": f"{PROGRAM}\nThis doesn't need atomics.",
    "behind prose": f"Sure, here's one:\n\n{PROGRAM}",
    "behind a draft": f"```\n{DRAFT}```\nBetter:\n```\n{PROGRAM}```",
    "behind reasoning": f"<think>\n```\n{DRAFT}```\nHm.\n</think>\n{PROGRAM}",
    "with line ends of windows": PROGRAM.replace("\n", "\r\n"),
    "behind a byte order mark": "\ufeff" + PROGRAM,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_the_program_is_found(answer: str) -> None:
    assert extract_program(answer) == PROGRAM


def test_preprocessor_lines_and_comments_above_the_directives_belong_to_the_program() -> None:
    program = "// A kernel.\n#include <cuda_fp16.h>\n\n" + make_program()
    assert extract_program(program) == program
    assert extract_program("Prose.\n" + program) == program


def test_device_functions_above_the_directives_belong_to_a_program_by_itself() -> None:
    program = "__device__ int one() {\n  return 1;\n}\n" + make_program()
    assert extract_program(program) == program


def test_what_closes_a_condition_belongs_to_the_program() -> None:
    program = make_program() + "#endif // arch\n"
    assert extract_program(program + "\nThat is all.") == program


def test_a_truncated_program_is_kept_to_its_end() -> None:
    truncated = PROGRAM[:-20]
    assert extract_program(truncated) == truncated.rstrip() + "\n"


@pytest.mark.parametrize("text", ["", "I can't.", "```cuda\n__global__ void f() {}\n```", "x //@ format csr"])
def test_text_without_a_directive_is_refused(text: str) -> None:
    with pytest.raises(InvalidProgram, match="no kernel program"):
        extract_program(text)


@pytest.mark.timeout(10)
@pytest.mark.parametrize("filler", ["/*", '"\\"', "{", "'", "```\n", "//@ x\n", "<think>"])
def test_a_long_answer_is_searched_in_time(filler: str) -> None:
    assert "//@ format csr" in extract_program(f"//@ format csr\n{filler * 150_000}\n//@ format csr\n")


@given(st.text(max_size=300))
def test_extraction_is_idempotent(prose: str) -> None:
    for text in (prose, f"{prose}\n{PROGRAM}", f"{PROGRAM}\n{prose}", f"{prose}\n```\n{PROGRAM}```"):
        try:
            once = extract_program(text)
        except InvalidProgram:
            continue
        assert extract_program(once) == once
