"""How often the program of `search="instant"` need not be compiled: its text was, for another matrix or before all.

    python -m benchmarks.measure.instant_texts PATTERNS [--most-nnz 3e6] [--every 2] [--seconds S] [--out FOLDER]

PATTERNS: a folder of SciPy .npz files. Each matrix counts once for float32 and once for float64. Texts are compared as the
compiler gets them: `literal` are the cost model's choices as the search would send them, `stand_ins` what is handed out.
A cache of N texts: those asked for most. `earlier`: shares whose text an earlier matrix asked for, in an order
chosen at random. Needs no GPU and compiles nothing.
"""

import argparse
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import scipy.sparse

from benchmarks.origin import ROOT, command, source_commit
from sparsesmith.families.stand_ins import common_texts
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.program.program import parse_program
from sparsesmith.tuning.cost import CostModel
from sparsesmith.tuning.instant import choices
from sparsesmith.tuning.models import CostModels
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType

TYPES: tuple[ElementType, ...] = ("float32", "float64")
CACHES = (16, 32, 64, 128)


def main() -> None:
    options = _options()
    end = time.monotonic() + options.seconds
    cost = CostModels(options.cost_model).on("NVIDIA H200")
    found: list[Chosen] = []
    num_matrices = 0
    for pattern in _patterns(options.patterns, options.every, options.most_nnz):
        if time.monotonic() > end:
            break
        num_matrices += 1
        found += [Chosen(pattern, element_type, cost) for element_type in TYPES]
    known = {parse_program(text, "spmv", element_type).source for text, element_type in common_texts()}
    result: dict[str, Any] = {
        "kind": "instant_texts",
        "commit": options.commit or source_commit(),
        "command": command("benchmarks.measure.instant_texts"),
        "matrices": num_matrices,
        "choices": len(found),
        "families": dict(Counter(each.family for each in found).most_common()),
        "literal": _shares([each.literal for each in found], known),
        "stand_ins": _shares([each.stand_in for each in found], known),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "instant_texts.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


class Chosen:
    """The first choice for a matrix: its family, and the text that is compiled, both ways."""

    def __init__(self, pattern: Pattern, element_type: ElementType, cost: CostModel) -> None:
        problem = Problem(Workload(pattern=pattern.digest, operation="spmv", element_type=element_type), pattern)
        literal = next(choices(problem, cost, stands_in=False)).instance
        self.family = literal.family
        self.literal = parse_program(literal.program, "spmv", element_type).source
        self.stand_in = parse_program(next(choices(problem, cost)).instance.program, "spmv", element_type).source


def _shares(texts: Sequence[str], known: set[str]) -> dict[str, Any]:
    counted = Counter(texts)
    order = random.Random(1).sample(texts, len(texts))
    earlier = sum(text in order[:place] for place, text in enumerate(order))
    return {
        "texts": len(counted),
        "earlier": round(earlier / len(texts), 3),
        "of_cache": {
            size: round(sum(count for _, count in counted.most_common(size)) / len(texts), 3) for size in CACHES
        },
        "compiled_at_the_start": round(sum(text in known for text in texts) / len(texts), 3),
    }


def _patterns(folder: Path, every: int, most_nnz: float) -> Iterator[Pattern]:
    for path in islice(sorted(folder.rglob("*.npz")), 0, None, every):
        matrix = scipy.sparse.load_npz(path)
        if 0 < matrix.nnz <= most_nnz:
            yield pattern_from_scipy(matrix)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", type=Path)
    parser.add_argument("--most-nnz", type=float, default=3e6)
    parser.add_argument("--every", type=int, default=1, help="matrix that counts")
    parser.add_argument("--seconds", type=float, default=3600, help="no matrix is begun after this time")
    parser.add_argument("--cost-model", type=Path, default=ROOT / "models" / "cost-h200")
    parser.add_argument("--commit", help="of the code, where there is no git")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "cpu")
    return parser.parse_args()


if __name__ == "__main__":
    main()
