"""Packs a folder of SciPy .npz patterns into one file (sparsesmith.matrix.pack), or lists such a file.

python -m benchmarks.matrices.matrix_pack FOLDER_OF_NPZ OUT.pack [--names FILE]
python -m benchmarks.matrices.matrix_pack --list FILE.pack
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import scipy.sparse

from sparsesmith.matrix.pack import encode_pattern, pack_index, read_pack, write_pack
from sparsesmith.matrix.pattern import pattern_from_scipy

__all__ = ["main", "read_pack"]


def _encode_file(path: Path) -> bytes:
    return encode_pattern(pattern_from_scipy(scipy.sparse.load_npz(path)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="folder of SciPy .npz files")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--names", type=Path, help="file with one name a line; default: all")
    parser.add_argument("--list", type=Path)
    options = parser.parse_args()
    if options.list:
        print(json.dumps(pack_index(options.list), indent=1))
        return
    if options.out is None:
        parser.error("FOLDER_OF_NPZ and OUT.pack are needed")
    wanted = set(options.names.read_text(encoding="utf-8").split()) if options.names else None
    files = [path for path in sorted(options.folder.glob("*.npz")) if wanted is None or path.stem in wanted]
    with ProcessPoolExecutor(max_workers=2) as pool:
        encoded = dict(zip((path.stem for path in files), pool.map(_encode_file, files, chunksize=4), strict=True))
    write_pack(options.out, encoded)
    print(f"{len(encoded)} patterns, {options.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
