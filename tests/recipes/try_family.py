"""Run in a tree with the recipe's family in it: proposed, graded on the interpreter, told to the tuner, taken home."""

from sparsesmith.artifacts.cpp_header import cpp_header
from sparsesmith.artifacts.python_loader import python_loader
from sparsesmith.families import FAMILIES, propose
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.families.text.values import Compression
from sparsesmith.formats.values.storage import Dictionary
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.program.program import parse_program
from sparsesmith.tuning.columns import all_words, columns_of
from sparsesmith.tuning.grid import grid_of
from sparsesmith_proto.kernel import Passed
from sparsesmith_proto.message import ElementType
from tests.artifacts.answers import make_device, make_matrix, make_report, make_workload
from tests.recipes.grading import outcomes

NAME = "csr_halves"


def main() -> None:
    matrix = make_matrix()
    pattern = pattern_from_scipy(matrix)
    offered = prospects_of(work_of(pattern, "float32"), "spmv", "float32")
    assert [entry.parameters for entry in offered if entry.family.name == NAME] == [{"block": 64}, {"block": 128}]
    (text, *_) = (entry.program for entry in propose(pattern, "spmv", "float32", limit=400) if entry.family == NAME)
    grid = grid_of(pattern, "spmv", "float32")
    assert NAME in grid.families and "family" in columns_of(grid, all_words())
    element_types: tuple[ElementType, ...] = ("float32", "float64")
    texts = {kind: FAMILIES[NAME].render({"block": 64}, kind) for kind in element_types}
    for outcome in outcomes(texts):
        assert isinstance(outcome, Passed), outcome
    compressed = FAMILIES[NAME].compressed({"block": 64}, "float32", 1, Compression(Dictionary("u8"), "shared"))
    assert compressed is not None and parse_program(compressed, "spmv", "float32")
    assert "spmv<<<" in cpp_header(text, make_workload(pattern), pattern, make_device())
    assert repr(text) in python_loader(make_report(matrix, text)) or text in python_loader(make_report(matrix, text))


if __name__ == "__main__":
    main()
