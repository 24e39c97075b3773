"""Run a sampled product of dense matrices on the user's own GPU: what the families propose first, not measured here."""

from typing import Any

import numpy as np

from sparsesmith.artifacts.launcher import import_cupy
from sparsesmith.artifacts.loaded_program import LoadedProgram
from sparsesmith.families import propose
from sparsesmith.formats.format import Argument
from sparsesmith.formats.values.compressed import build_layout
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import check_element_type
from sparsesmith.program.binding import bind
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType

OPERATION = "sddmm"


class SampledLauncher:
    """Of one pattern and number of columns, on the device that is current when it is made."""

    def __init__(self, pattern: Pattern, element_type: ElementType, num_dense_cols: int) -> None:
        """Raises InvalidOption for element types that the operation is not computed for, Unavailable without a GPU."""
        check_element_type(operation_named(OPERATION), element_type)
        cupy = import_cupy()
        workload = Workload(
            pattern=pattern.digest, operation=OPERATION, element_type=element_type, num_dense_cols=num_dense_cols
        )
        (proposed,) = propose(pattern, OPERATION, element_type, num_dense_cols, limit=1)
        program = parse_program(proposed.program, OPERATION, element_type)
        layout = build_layout(program.format, program.parameters, pattern, None)
        num_sms = cupy.cuda.Device().attributes["MultiProcessorCount"]
        self._bound = bind(program, layout, Problem(workload, pattern), num_sms)
        self._kernels = LoadedProgram(cupy, program, self._bound)
        self._indices = {name: cupy.asarray(array) for name, array in layout.indices.items()}

    def __call__(self, u: Any, v: Any, z: Any) -> None:
        """z [nnz], in the order of CSR: for each nonzero (i, j) the sum over columns of u[i] v[j]. Contiguous arrays of
        CuPy in the element type, on its current stream."""
        given = {"u": u, "v": v, "z": z}
        self._kernels.launch(tuple(self._argument(each, given) for each in self._bound.arguments))

    def _argument(self, argument: Argument, given: dict[str, Any]) -> Any:
        match argument.role:
            case "size":
                return np.int32(self._bound.sizes[argument.name])
            case "index":
                return self._indices[argument.name]
            case "values":  # Never read: any address will do.
                return given["z"]
            case _:
                return given[argument.name]
