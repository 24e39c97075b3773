"""Options and arguments that commands share: a name, a type and a help text each."""

from pathlib import Path
from typing import Annotated

import typer

from sparsesmith_proto.words import ElementType, ReorderOption, TransposedOption, TransposedStorage, ValuesOption

MatrixFile = Annotated[Path, typer.Argument(help="A sparse matrix: .mtx, .mtx.gz or SciPy .npz", metavar="MATRIX")]
MatrixOrTask = Annotated[
    Path | None,
    typer.Argument(help="A sparse matrix: .mtx, .mtx.gz or SciPy .npz; none with --task", metavar="[MATRIX]"),
]
TaskName = Annotated[
    str | None, typer.Option("--task", help="In the place of a matrix: an operation without one", metavar="NAME")
]
AxesOption = Annotated[
    str, typer.Option(help="Sizes that the operation names, such as rows=64,cols=128", metavar="NAME=SIZE,...")
]
JobId = Annotated[str, typer.Argument(help="A job's id, or its address as the server gave it", metavar="JOB")]
JobIds = Annotated[list[str], typer.Argument(help="Ids of jobs, or their addresses", metavar="JOB...")]

Url = Annotated[
    str | None,
    typer.Option(help="The server [default: SPARSESMITH_URL, else http://127.0.0.1:8000]", metavar="ADDRESS"),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        "-H",
        help="A header for every request, such as 'Authorization: Bearer ...'; may be given again. "
        "SPARSESMITH_HEADERS has one a line and shows them to no list of processes",
        metavar="'NAME: VALUE'",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else")]
OutFolder = Annotated[
    Path | None, typer.Option(help="Folder for the .cu, .hpp, .py and .json of the answer", metavar="FOLDER")
]

OperationOption = Annotated[str, typer.Option(help="spmv: y = A x; spmm: C = A B", metavar="NAME")]
ElementTypeOption = Annotated[ElementType, typer.Option("--type", help="Type of the values")]
NumDenseCols = Annotated[int, typer.Option(help="Columns of B (spmm)", metavar="COLUMNS")]
ValuesOf = Annotated[
    ValuesOption,
    typer.Option("--values", help="Right for any values, or for the file's own, exploiting them"),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Equal inputs give equal bits, in every run; no atomic sums")
]
Transposed = Annotated[
    TransposedOption, typer.Option("--transposed", help="yes: a kernel for A^T in the place of A; both: one for each")
]
StorageOfTransposed = Annotated[
    TransposedStorage,
    typer.Option("--transposed-storage", help="What A^T is multiplied from: a copy of its own, or A as it is stored"),
]
AlphaBeta = Annotated[bool, typer.Option("--alpha-beta", help="What is graded and timed is y = alpha A x + beta y")]
Reorder = Annotated[
    ReorderOption,
    typer.Option("--reorder", help="allowed: kernels, too, that number rows and columns anew; the copy of x is timed"),
]
GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", help="The kind of GPU to use, as the server's fleet lists it: 'NVIDIA H200', H200, sm_90"),
]
State = Annotated[Path, typer.Option(help="Folder for the queue, the weights and the logs", metavar="FOLDER")]
