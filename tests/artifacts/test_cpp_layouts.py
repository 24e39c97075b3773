"""The C++ builders of the header give the same arrays as the Python builders. Needs g++ (skipped without it)."""

import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from sparsesmith.artifacts.cpp_header import cpp_parameters, fingerprint, format_code
from sparsesmith.formats import FORMATS, complete_parameters
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")

CHOICES: dict[str, tuple[dict[str, int | str], ...]] = {
    "csr": ({}, {"index": "u16"}, {"index": "u8"}, {"index": "u16_row"}),
    "csr_rowblocks": ({"nnz_per_block": 32}, {"nnz_per_block": 64, "max_rows": 5, "index": "u16"}),
    "csr_tiles": (
        {"chunks": 5, "vector": 2, "max_rows": 9},
        {"chunks": 5, "vector": 2, "max_rows": 7, "index": "u16", "order": "column", "rows": "length"},
        {"chunks": 1, "vector": 2, "max_rows": 3, "order": "column", "rows": "column", "long_rows": "split"},
        {"max_rows": 64, "index": "u16", "long_rows": "split"},
        {"chunks": 5, "vector": 2, "max_rows": 64, "rows": "column"},
        {"chunks": 1, "vector": 1, "max_rows": 16, "long_rows": "split", "hub_cols": 7},
        {"chunks": 5, "vector": 2, "max_rows": 7, "index": "u16", "order": "column", "rows": "column", "hub_cols": 9},
    ),
    "csr_distinct": (
        {"nnz_per_block": 300, "max_rows": 9},
        {"nnz_per_block": 4096},
        {"nnz_per_block": 300, "max_rows": 5, "rows": "breadth"},
    ),
    "csr_merge": (
        {"items": 8},
        {"items": 16, "balance": "nnz"},
        {"items": 8, "index": "u16"},
        {"items": 8, "balance": "nnz", "index": "u8"},
    ),
    "coo": ({}, {"index": "u16"}),
    "ell": ({},),
    "sell": (
        {},
        {"slice": 4, "sigma": 16},
        {"slice": 8, "sigma": 0, "index": "u16"},
        {"slice": 4, "index": "u8"},
        {"slice": 8, "sigma": 16, "index": "u16_slot"},
        {"slice": 4, "sigma": 8, "rows": "breadth"},
        {"slice": 8, "index": "u8", "rows": "breadth"},
    ),
    "dia": ({}, {"slice": 32}),
    "bsell": (
        {},
        {"block_rows": 3, "block_cols": 3, "slice": 4, "sigma": 8},
        {"block_rows": 2, "block_cols": 3, "slice": 8, "sigma": 0, "index": "u16"},
    ),
    "row_bins": (
        {},
        {"widths": "1,3,300", "steps": 2, "max_lanes": 128},
        {"widths": "300", "steps": 16, "index": "u16"},
        {"widths": "2,5,300", "steps": 8, "max_lanes": 64, "index": "u18"},
        {"widths": "300", "steps": 2, "index": "u20"},
        {"widths": "2,300", "steps": 2, "numbering": "breadth"},
        {"widths": "300", "steps": 4, "index": "u16", "numbering": "breadth"},
        {"widths": "1,9,300", "index": "u18", "numbering": "popular"},
    ),
    "bsr": ({}, {"block_rows": 3, "block_cols": 4}),
    "panels": ({"parts": 2, "bins": 5}, {"panel_cols": 32, "parts": 4, "bins": 3, "rounds": 2}),
    "hyb": (
        {"width": 3},
        {"width": 5, "rest": "coo"},
        {"width": 4, "index": "u16"},
        {"width": 2, "rest": "coo", "index": "u16"},
    ),
    "hubs": ({"items": 2}, {"hub_cols": 7, "items": 4}),
    "cells": (
        {"strips": 3, "cell_cols": 32},
        {"strips": 5, "height": 4, "cell_cols": 64, "pad": 2, "parts": 3},
        {"strips": 2, "height": 8, "cell_cols": 256, "pad": 1},
    ),
    "csc": ({},),
    "bitmap": ({}, {"part_cols": 256}),
}

MAIN = """
#include <cstdio>
int main(int argc, char** argv) {
  Csr csr;
  int nnz = 0;
  if (std::scanf("%d %d %d", &csr.num_rows, &csr.num_cols, &nnz) != 3) return 1;
  csr.row_offsets.resize(csr.num_rows + 1);
  csr.col_indices.resize(nnz);
  for (int& word : csr.row_offsets) if (std::scanf("%d", &word) != 1) return 1;
  for (int& word : csr.col_indices) if (std::scanf("%d", &word) != 1) return 1;
  std::printf("fingerprint %llu\\n", static_cast<unsigned long long>(fingerprint(csr)));
  const Layout layout = BUILD(csr, Parameters{PARAMETERS});
  for (const auto& [name, size] : layout.sizes) std::printf("size_%s %d\\n", name.c_str(), size);
  for (const auto& [name, count] : layout.scratch) std::printf("scratch_%s %zu\\n", name.c_str(), count);
  auto print = [](const std::string& name, const auto& array) {
    std::printf("%s", name.c_str());
    for (auto word : array) std::printf(" %d", static_cast<int>(word));
    std::printf("\\n");
  };
  for (const auto& [name, array] : layout.ints) print(name, array);
  for (const auto& [name, array] : layout.shorts) print(name, array);
  for (const auto& [name, array] : layout.bytes) print(name, array);
  print("value_sources", layout.value_sources);
}
"""

PATTERNS = {
    "ragged": scipy.sparse.random(37, 23, 0.2, random_state=1),
    "empty rows and one long": scipy.sparse.vstack(
        [scipy.sparse.csr_matrix((9, 40)), np.ones((1, 40)), scipy.sparse.csr_matrix((3, 40)), np.eye(7, 40)]
    ),
    "rows of several tiles": scipy.sparse.vstack(
        [np.eye(3, 250), np.ones((1, 250)), np.eye(20, 250), np.ones((2, 250)), scipy.sparse.csr_matrix((4, 250))]
    ),
    "steps to the right": scipy.sparse.csr_matrix(
        (np.ones(60), np.add.outer(np.arange(0, 900, 90), [0, 5, 9, 20, 33, 60]).reshape(-1), np.arange(0, 61, 6)),
        shape=(10, 900),
    ),
    "one column": scipy.sparse.csr_matrix(np.ones((50, 1))),
    "one entry": scipy.sparse.csr_matrix(([1.0], ([3], [2])), shape=(5, 4)),
    "components": scipy.sparse.block_diag(
        [np.eye(5), scipy.sparse.random(9, 14, 0.3, random_state=5), np.zeros((2, 1)), np.ones((3, 2))]
    ).tocsr()[np.random.default_rng(6).permutation(19)],
    "banded": scipy.sparse.diags([1.0, 1.0, 1.0], [-2, 0, 5], shape=(33, 33)),
}

PATTERNS_BEYOND_SIXTEEN_BITS = {
    "hyb": {
        "far apart": scipy.sparse.hstack(
            [np.eye(70, 40), scipy.sparse.csr_matrix((70, 90_000)), scipy.sparse.random(70, 9, 0.3, random_state=2)]
        ),
    },
    "row_bins": {
        "across 65536": scipy.sparse.csr_matrix(
            (np.ones(90), 60_000 + np.arange(90) * 600, [0, 3, 3, 20, 60, 61, 90]), shape=(6, 120_000)
        )
    },
}
"""Of formats whose 16-bit columns refuse no pattern, or not these."""


def built_in_cpp(pattern: Pattern, program: Path) -> dict[str, list[int]]:
    words = [pattern.num_rows, pattern.num_cols, pattern.nnz, *pattern.row_offsets, *pattern.col_indices]
    run = subprocess.run([program], input=" ".join(map(str, words)), capture_output=True, text=True, check=True)
    lines = (line.split() for line in run.stdout.splitlines())
    return {name: [int(word) for word in words] for name, *words in lines}


def built_in_python(pattern: Pattern, name: str, parameters: dict[str, int | str]) -> dict[str, list[int]]:
    layout = FORMATS[name].build(pattern, parameters)
    sources = [] if layout.value_sources is None else layout.value_sources.tolist()
    arrays = {name: array.tolist() for name, array in layout.indices.items()}
    sizes = {f"size_{name}": [size] for name, size in layout.sizes.items()}
    scratch = {f"scratch_{name}": [count] for name, count in layout.scratch.items()}
    return {"fingerprint": [fingerprint(pattern)], "value_sources": sources} | arrays | sizes | scratch


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_the_cpp_builder_of_each_format_gives_the_arrays_of_the_python_builder(name: str, tmp_path: Path) -> None:
    folder = files("sparsesmith.artifacts") / "cpp"
    for number, given in enumerate(CHOICES[name]):
        parameters = complete_parameters(FORMATS[name], given)
        listed = cpp_parameters(FORMATS[name], parameters)
        code = (folder / "layout.hpp").read_text() + format_code(name)
        code += MAIN.replace("BUILD", f"build_{name}").replace("PARAMETERS", listed)
        source, program = tmp_path / f"{number}.cpp", tmp_path / f"{number}"
        source.write_text(code)
        subprocess.run(["g++", "-std=c++17", "-Wall", "-Werror", "-o", program, source], check=True)
        for title, matrix in (PATTERNS | PATTERNS_BEYOND_SIXTEEN_BITS.get(name, {})).items():
            pattern = pattern_from_scipy(scipy.sparse.csr_matrix(matrix))
            assert built_in_cpp(pattern, program) == built_in_python(pattern, name, parameters), (title, given)
