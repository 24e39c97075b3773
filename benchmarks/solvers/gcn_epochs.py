"""An epoch of a graph convolutional network: the operator's product in PyG's layer, PyG's own message passing, torch's CSR.

    python -m benchmarks.solvers.gcn_epochs [--nodes 169343] [--edges 1166243] [--features 128] [--hidden 256] [--classes 40]
        [--layers 3] [--epochs 50] [--candidates 64] [--seconds S]

The graph is as large as ogbn-arxiv and made by formula with a fixed seed: edges to nodes of a popularity that follows a power
law, made undirected, with self-loops, symmetrically normalised (Kipf and Welling 2017). All three networks are PyG's GCNConv
with the same weights at first, features, labels and Adam, in float32; they differ in the sparse product alone: ours is by kernels
tuned for each width (A is symmetric, so A's kernel serves the backward pass), `pyg` gathers and scatters messages,
`pyg_csr` multiplies with a torch.sparse CSR matrix. An epoch is forward, loss, backward and a step; epochs are
timed in turns, each until the device is done. A side that does not run says why. Without a GPU all runs on the host: times
that nobody measures.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import scipy.sparse
import torch
from torch.nn import functional
from torch_geometric.nn import GCNConv

from benchmarks.solvers.row_files import Row, RowFile
from benchmarks.solvers.tuned_here import TunedHere, add_tuning, tuned_here
from sparsesmith.matrix.pattern import pattern_from_scipy
from sparsesmith.operations import Problem
from sparsesmith.operator import Operator
from sparsesmith.torch import product
from sparsesmith_proto.api import KernelReport
from sparsesmith_proto.kernel import Workload

WARM_UP_EPOCHS = 3
LARGEST_DIFFERENCE = 1e-3
"""Of the losses after the epochs that warm up, relative."""

Epoch = Callable[[], torch.Tensor]
"""Trains once over the graph; gives the loss, which lies on the device."""


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    end = time.monotonic() + options.seconds
    sizes = ("nodes", "edges", "features", "hidden", "classes", "layers", "epochs", "candidates")
    with tuned_here(options) as tuning:
        settings = {name: getattr(options, name) for name in sizes}
        file = RowFile("gcn_epochs", tuning.device, options, settings, lambda _: {"torch": torch.__version__})
        file.fill({f"power-law-{options.nodes}": partial(_row, tuning, options)}, end)


def citation_graph(num_nodes: int, num_edges: int) -> scipy.sparse.csr_matrix:
    """D^-1/2 (A + A^T + I) D^-1/2 of an unweighted graph, float32: symmetric."""
    random = np.random.default_rng(11)
    popularity = np.cumsum((np.arange(num_nodes) + 5.0) ** -0.8)
    cited = np.searchsorted(popularity, random.uniform(0, popularity[-1], num_edges))
    names = random.permutation(num_nodes)
    edges = (random.integers(0, num_nodes, num_edges), names[np.minimum(cited, num_nodes - 1)])
    directed = scipy.sparse.coo_matrix((np.ones(num_edges), edges), shape=(num_nodes, num_nodes))
    graph = scipy.sparse.csr_matrix(directed + directed.T + scipy.sparse.identity(num_nodes))
    graph.data[:] = 1
    scale = scipy.sparse.diags(1 / np.sqrt(np.diff(graph.indptr)))
    normalised = scipy.sparse.csr_matrix(scale @ graph @ scale, dtype=np.float32)
    normalised.sort_indices()
    return normalised


class Convolution(GCNConv):  # type: ignore[misc]
    """PyG's layer, whose sparse product is the operator's."""

    def __init__(self, operator: Operator, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, normalize=False)
        self._operator = operator

    def message_and_aggregate(self, adj_t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return product(self._operator, x)


class Network(torch.nn.Module):
    """Layers with ReLU between them."""

    def __init__(self, layers: list[GCNConv]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = functional.relu(layer(x, edges, weights))
        found: torch.Tensor = self.layers[-1](x, edges, weights)
        return found


def _row(tuning: TunedHere, options: argparse.Namespace) -> Row:
    matrix = citation_graph(options.nodes, options.edges)
    widths = [options.features, *[options.hidden] * (options.layers - 1), options.classes]
    began = time.monotonic()
    reports = {width: _report(tuning, matrix, width) for width in sorted(set(widths[1:]))}
    tuning_s = time.monotonic() - began
    tuning.give_back()
    operators = {width: Operator(report, matrix, transposed=report) for width, report in reports.items()}
    makers: dict[str, Callable[[int, int], GCNConv]] = {
        "operator": lambda inputs, outputs: Convolution(operators[outputs], inputs, outputs),
        "pyg": lambda inputs, outputs: GCNConv(inputs, outputs, normalize=False),
        "pyg_csr": lambda inputs, outputs: GCNConv(inputs, outputs, normalize=False),
    }
    graphs = _graphs(matrix, _device())
    epochs: dict[str, Epoch] = {}
    losses: dict[str, float] = {}
    failed: dict[str, str] = {}
    for side, maker in makers.items():
        torch.manual_seed(1)
        network = Network([maker(*sizes) for sizes in pairwise(widths)]).to(_device())
        epoch = _epoch(network, graphs["pyg" if side == "pyg" else "csr"], options)
        try:
            losses[side] = [float(epoch()) for _ in range(WARM_UP_EPOCHS)][-1]
        except (RuntimeError, NotImplementedError) as error:
            failed[side] = f"{type(error).__name__}: {error}"[:1000]
            continue
        epochs[side] = epoch
    _check(losses)
    us = _in_turns(epochs, options.epochs)
    return {
        "nodes": matrix.shape[0],
        "nnz": int(matrix.nnz),
        "largest_degree": int(np.diff(matrix.indptr).max()),
        "answers": {str(width): report.answer.kind for width, report in reports.items()},
        "tuning_s": tuning_s,
        "us_an_epoch": us,
        "loss_after_warm_up": losses,
        "failed_sides": failed,
        **{f"over_{side}": us[side] / us["operator"] for side in us if side != "operator" and "operator" in us},
    }


def _report(tuning: TunedHere, matrix: scipy.sparse.csr_matrix, width: int) -> KernelReport:
    pattern = pattern_from_scipy(matrix)
    workload = Workload(pattern=pattern.digest, operation="spmm", element_type="float32", num_dense_cols=width)
    return tuning.report(Problem(workload, pattern))


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _graphs(matrix: scipy.sparse.csr_matrix, device: str) -> dict[str, tuple[torch.Tensor, torch.Tensor | None]]:
    """As PyG's message passing takes it, and in CSR."""
    rows = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    edges = torch.from_numpy(np.stack([matrix.indices.astype(np.int64), rows.astype(np.int64)]))
    values = torch.from_numpy(matrix.data)
    offsets, columns = torch.from_numpy(matrix.indptr), torch.from_numpy(matrix.indices)
    csr = torch.sparse_csr_tensor(offsets, columns, values, size=matrix.shape, check_invariants=True)
    return {"pyg": (edges.to(device), values.to(device)), "csr": (csr.to(device), None)}


def _epoch(network: Network, graph: tuple[torch.Tensor, torch.Tensor | None], options: argparse.Namespace) -> Epoch:
    random = np.random.default_rng(2)
    x = torch.from_numpy(random.standard_normal((options.nodes, options.features)).astype(np.float32)).to(_device())
    labels = torch.from_numpy(random.integers(0, options.classes, options.nodes)).to(_device())
    optimiser = torch.optim.Adam(network.parameters(), lr=0.01)

    def epoch() -> torch.Tensor:
        optimiser.zero_grad()
        loss = functional.cross_entropy(network(x, *graph), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.detach()

    return epoch


def _check(losses: dict[str, float]) -> None:
    """Raises ArithmeticError where networks that are the same have learnt otherwise."""
    for side, loss in losses.items():
        expected = losses.get("pyg", loss)
        if not abs(loss - expected) <= LARGEST_DIFFERENCE * abs(expected):
            raise ArithmeticError(
                f"{side}: a loss of {loss:.6g} after {WARM_UP_EPOCHS} epochs, PyG's is {expected:.6g}"
            )


def _in_turns(epochs: dict[str, Epoch], count: int) -> dict[str, float]:
    """Median microseconds of each side's epochs, the host's part included."""
    times: dict[str, list[float]] = {side: [] for side in epochs}
    for _ in range(count):
        for side, epoch in epochs.items():
            _wait()
            started = time.perf_counter()
            epoch()
            _wait()
            times[side].append((time.perf_counter() - started) * 1e6)
    return {side: statistics.median(each) for side, each in times.items()}


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=169_343)
    parser.add_argument("--edges", type=int, default=1_166_243, help="before they are made undirected")
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=50)
    add_tuning(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
