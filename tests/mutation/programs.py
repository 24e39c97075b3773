"""Family programs to be changed, and patterns with a few long rows."""

import numpy as np
import scipy.sparse as sp

from services.evaluator.checking.correctness import Correct
from services.evaluator.compiling.compiler import Compiled, Compiler
from services.evaluator.interpreter.device import InterpreterDevice
from services.evaluator.isolation.workbench import LocalWorkbench
from sparsesmith.families import FAMILIES
from sparsesmith.families.proposal import prospects_of, work_of
from sparsesmith.formats.format import ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_scipy
from sparsesmith.mutation import Subject, subject_of
from sparsesmith.operations import Problem, operation_named
from sparsesmith.operations.texts import programs_for
from sparsesmith.program.program import parse_program
from sparsesmith_proto.kernel import Workload
from sparsesmith_proto.message import ElementType, Operation


def mixed_rows(num_rows: int = 200, num_cols: int = 150) -> Pattern:
    """Short rows, two of a hundred nonzeros, some empty."""
    random = np.random.default_rng(num_rows)
    dense = random.random((num_rows, num_cols)) < 0.03
    dense[7], dense[num_rows // 2, ::2], dense[20:24] = True, True, False
    return pattern_from_scipy(sp.csr_matrix(dense.astype(float)))


PATTERN = mixed_rows()


def instance_subject(
    family: str,
    pattern: Pattern = PATTERN,
    element_type: ElementType = "float32",
    num_dense_cols: int = 1,
    **chosen: ParameterValue,
) -> Subject:
    """The first proposal of a family for the pattern (or its defaults), with some parameters chosen."""
    operation = FAMILIES[family].operation
    every = prospects_of(work_of(pattern, element_type, num_dense_cols), operation, element_type)
    defaults = {name: spec.default for name, spec in FAMILIES[family].parameters.items()}
    proposed = next((each.parameters for each in every if each.family.name == family), defaults)
    parameters = {**proposed, **chosen}
    instance = FAMILIES[family].instance(parameters, element_type, num_dense_cols)
    return subject_of(instance.program, pattern, operation, element_type, num_dense_cols, instance)


def written_subject(text: str, pattern: Pattern = PATTERN, operation: Operation = "spmv") -> Subject:
    return subject_of(text, pattern, operation, "float32", 1 if operation == "spmv" else 8)


def task_subject(name: str, program: str = "", element_type: ElementType = "float32") -> Subject:
    """A program of a task's folder, the naive one without a name."""
    task = operation_named(name)
    return subject_of(programs_for(task, element_type)[program or task.naive], None, name, element_type)


def what_is_wrong(subject: Subject, text: str, compiler: Compiler) -> str:
    """Why a program is not right for the subject's problem; empty where it is, on the interpreter."""
    workload = Workload(
        pattern=None if subject.matrix is None else subject.matrix.digest,
        operation=subject.operation,
        element_type=subject.element_type,
        num_dense_cols=subject.num_dense_cols,
        axes={} if subject.matrix is not None else dict(operation_named(subject.operation).trial),
    )
    program = parse_program(text, subject.operation, subject.element_type)
    binary = compiler.compile(program.source, "sm_90")
    if not isinstance(binary, Compiled):
        return binary.log
    workbench = LocalWorkbench(InterpreterDevice(), Problem(workload, subject.matrix))
    workbench.build(program)
    verdict = workbench.check("kernel", program, binary)
    workbench.close()
    return "" if isinstance(verdict, Correct) else str(verdict)
