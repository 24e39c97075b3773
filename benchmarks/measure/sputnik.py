"""Sputnik's product of a pruned layer with a dense matrix, float32, beside ours: compiled here, timed where it is asked for.

    python -m benchmarks.measure.sputnik CHECKOUT SPUTNIK.so [--nvcc NVCC] [--architecture sm_90]
    python -m benchmarks.measure.run --dlmc --pack ALL.pack --sputnik SPUTNIK.so        or --layers

Sputnik (Gale, Zaharia, Young, Elsen: "Sparse GPU Kernels for Deep Learning", 2020) is what papers on pruned layers compare
with. CHECKOUT: https://github.com/google-research/sputnik, Apache-2.0, of which `sputnik/*.h` and `sputnik/spmm/` are read;
nothing of it is kept in this repository. The library says the digest of those sources: `sha256_347050451e5a` is commit bbf5840.

Compiling takes half a minute and no GPU. Timed as the dense product is (`dense`): with graphs of calls in this process,
while ours and the library's routines are timed by the evaluator's, in batches of the same length. Rows are taken by their
length, longest first, as its own benchmarks do, and as they are stored, in turns; the faster counts.
"""

import argparse
import ctypes
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure.dense import cold_us, operands
from benchmarks.measure.nvcc import NoNvcc, compile_library, nvcc_command
from sparsesmith.matrix.pattern import Int32Array, Pattern
from sparsesmith.operations import Problem
from sparsesmith_proto.kernel import Workload

if TYPE_CHECKING:
    import torch

ENTRY = Path(__file__).with_name("sputnik_entry.cu")
PRODUCT = Path("sputnik", "spmm", "cuda_spmm.cu.cc")
ARCHITECTURE = "sm_90"
BATCHES = 20

Call = Callable[[], "torch.Tensor"]


class SputnikUnusable(RuntimeError):
    """There is no such library or checkout, it does not run, or its result is wrong."""


class Sputnik:
    """The library that `build` made."""

    def __init__(self, path: Path) -> None:
        """Raises SputnikUnusable."""
        if not path.is_file():
            raise SputnikUnusable(f"there is no library {path}")
        try:
            library = ctypes.CDLL(str(path.resolve()))
            self._product, told = library.sputnik_spmm, library.sputnik_sources
        except (OSError, AttributeError) as error:
            raise SputnikUnusable(f"{path} is none that `benchmarks.measure.sputnik` compiles: {error}") from error
        told.restype = ctypes.c_char_p
        self.sources = str(told().decode())
        """Digest of what it was compiled from."""

    def calls(self, pattern: Pattern, values: Any, dense: Any, device: str) -> dict[str, Call]:
        """A B by the order in which rows are taken. `values` [nnz] and `dense` [num_cols, num_dense_cols], NumPy's,
        float32; each call writes the one tensor that it gives, and raises SputnikUnusable."""
        import torch

        arrays = [np.array(each, np.int32) for each in (pattern.row_offsets, pattern.col_indices)]
        arrays += [np.array(each, np.float32) for each in (values, dense)]
        given = [torch.from_numpy(array).to(device) for array in arrays]
        sizes = (pattern.num_rows, pattern.num_cols, int(dense.shape[1]), pattern.nnz)
        return {
            name: self._call(sizes, torch.from_numpy(rows).to(device), *given)
            for name, rows in row_orders(pattern).items()
        }

    def _call(
        self,
        sizes: tuple[int, ...],
        rows: "torch.Tensor",
        offsets: "torch.Tensor",
        columns: "torch.Tensor",
        values: "torch.Tensor",
        dense: "torch.Tensor",
    ) -> Call:
        import torch

        from benchmarks.measure.cub_routines import stream_of

        out = torch.full((sizes[0], sizes[2]), float("nan"), dtype=torch.float32, device=dense.device)
        given = [ctypes.c_int(size) for size in sizes]
        arrays = (rows, values, offsets, columns, dense, out)

        def call() -> "torch.Tensor":
            pointers = [ctypes.c_void_p(array.data_ptr()) for array in arrays]
            status = self._product(*given, *pointers, ctypes.c_void_p(stream_of(out)))
            if status:
                raise SputnikUnusable(f"sputnik_spmm: CUDA's runtime says {status}")
            return out

        return call


def row_orders(pattern: Pattern) -> Mapping[str, Int32Array]:
    """In which its threads may take the rows."""
    return {
        "rows_by_length": np.argsort(-pattern.row_lengths, kind="stable").astype(np.int32),
        "rows_as_stored": np.arange(pattern.num_rows, dtype=np.int32),
    }


def sputnik_times(library: Sputnik, pattern: Pattern, num_dense_cols: int) -> dict[str, float | str]:
    """Microseconds of A B, warm (`us`) and with the L2 flushed (`cold_us`), each of the faster order of rows, and the
    largest error as a share of what float32 allows. Raises SputnikUnusable where a result is wrong or no graph of it can
    be made, RuntimeError where it does not run, ImportError without PyTorch."""
    from benchmarks.measure.task_libraries import in_turns_us

    values, dense = operands(pattern, num_dense_cols)
    calls = library.calls(pattern, values, dense, "cuda")
    worst = checked(calls, pattern, values, dense)
    times, is_captured = in_turns_us(list(calls.values()), BATCHES)
    if not is_captured:
        raise SputnikUnusable("its calls are not captured in a graph: their times would be the host's")
    warm = dict(zip(calls, times, strict=True))
    best = min(warm, key=warm.__getitem__)
    cold = min(map(cold_us, calls.values()))
    return {"routine": f"sputnik_{best}", "us": warm[best], "cold_us": cold, "error_of_bound": worst}


def checked(calls: Mapping[str, Call], pattern: Pattern, values: Any, dense: Any) -> float:
    """The largest error of the calls' results, as a share of what candidates are allowed. Raises SputnikUnusable beyond it."""
    workload = Workload(
        pattern=pattern.digest, operation="spmm", element_type="float32", num_dense_cols=int(dense.shape[1])
    )
    problem = Problem(workload, pattern)
    right = problem.operation.expect(problem, {"values": values, "b": dense})["c"]
    worst = 0.0
    for name, call in calls.items():
        error = np.abs(call().cpu().numpy().astype(np.float64) - right.reference)
        wrong = ~(error <= right.bound)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise SputnikUnusable(
                f"{name}: {int(wrong.sum())} of {error.size} entries are wrong, the first at row {row}, column {column}: "
                f"off by {error[row, column]:.3g}, {right.bound[row, column]:.3g} is allowed"
            )
        shares = np.divide(error, right.bound, out=np.zeros_like(error), where=right.bound > 0)
        worst = max(worst, float(shares.max(initial=0.0)))
    return worst


def build(checkout: Path, target: Path, architecture: str = ARCHITECTURE, nvcc: Path | None = None) -> str:
    """Compiles the library; the digest of its sources. Raises SputnikUnusable without a checkout, NoNvcc."""
    if not (checkout / PRODUCT).is_file():
        raise SputnikUnusable(f"{checkout} is no checkout of google-research/sputnik: it has no {PRODUCT}")
    sources = sources_digest(checkout)
    named = [f"-I{checkout}", f"-DSPUTNIK_SOURCES={sources}", "-x", "cu"]
    compile_library([*nvcc_command(architecture, nvcc), *named], [ENTRY, checkout / PRODUCT], target)
    return sources


def sources_digest(checkout: Path) -> str:
    """Of what is compiled and the headers that it may include, by name and text."""
    read = [*sorted((checkout / "sputnik").glob("*.h")), *sorted((checkout / "sputnik" / "spmm").glob("*.h"))]
    digest = hashlib.sha256()
    for path in [*read, checkout / PRODUCT]:
        digest.update(f"{path.relative_to(checkout)}\n".encode() + path.read_bytes())
    return f"sha256_{digest.hexdigest()[:12]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="of google-research/sputnik")
    parser.add_argument("target", type=Path, help="the library to write")
    parser.add_argument("--architecture", default=ARCHITECTURE, help="of the GPU, as nvcc calls it")
    parser.add_argument("--nvcc", type=Path, help="CUDA's compiler; default: of wheels, CUDA_HOME or the PATH")
    options = parser.parse_args()
    try:
        sources = build(options.checkout, options.target, options.architecture, options.nvcc)
    except (SputnikUnusable, NoNvcc) as error:
        parser.exit(1, f"{error}\n")
    print(f"{options.target}: Sputnik {sources} for {options.architecture}, {options.target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
