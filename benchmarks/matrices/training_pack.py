"""Packs large matrices to train on: the kinds of benchmarks/matrices/generated.py in other sizes, so that none is reported on.

python -m benchmarks.matrices.training_pack OUT.pack
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.matrices.generated import banded, fem_blocks, power_law, stencil_2d, stencil_3d, uniform_rows
from sparsesmith.matrix.pack import encode_pattern, write_pack
from sparsesmith.matrix.pattern import Pattern

TRAINING: dict[str, Callable[[], Pattern]] = {
    "train_stencil2d5_600": lambda: stencil_2d(600, 5),
    "train_stencil2d9_1100": lambda: stencil_2d(1100, 9),
    "train_stencil3d7_110": lambda: stencil_3d(110, 7),
    "train_stencil3d27_70": lambda: stencil_3d(70, 27),
    "train_fem2_450": lambda: fem_blocks(450, 2),
    "train_fem3_320": lambda: fem_blocks(320, 3),
    "train_banded_700000_5": lambda: banded(700_000, 5),
    "train_banded_300000_20": lambda: banded(300_000, 20),
    "train_power_law_600000": lambda: power_law(600_000, 14),
    "train_uniform_500000_20": lambda: uniform_rows(500_000, 20),
    "train_uniform_2000000_4": lambda: uniform_rows(2_000_000, 4),
}
"""Name -> maker. 1.8e6 to 1.2e7 nonzeros each."""

TRAINING_NNZ: dict[str, int] = {
    "train_stencil2d5_600": 1_797_600,
    "train_stencil2d9_1100": 10_876_804,
    "train_stencil3d7_110": 9_244_400,
    "train_stencil3d27_70": 8_998_912,
    "train_fem2_450": 5_655_608,
    "train_fem3_320": 6_428_178,
    "train_banded_700000_5": 7_699_970,
    "train_banded_300000_20": 12_299_580,
    "train_power_law_600000": 8_090_255,
    "train_uniform_500000_20": 9_999_815,
    "train_uniform_2000000_4": 7_999_998,
}
"""Nonzeros of each, known without making it."""


def _encoded(name: str) -> bytes:
    return encode_pattern(TRAINING[name]())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        write_pack(options.out, dict(zip(TRAINING, pool.map(_encoded, TRAINING), strict=True)))


if __name__ == "__main__":
    main()
