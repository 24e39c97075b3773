"""The Python loader of an answer: one file that needs sparsesmith's base package and CuPy."""

from string import Template

from sparsesmith.artifacts.running import running_routine
from sparsesmith.operations import operation_named
from sparsesmith.operations.task import baseline_of
from sparsesmith.operations.texts import with_element_type
from sparsesmith.program.extraction import extract_program
from sparsesmith_proto.api import KernelReport, LibraryAnswer, TunedAnswer
from sparsesmith_proto.kernel import DeviceDescription, Workload

_PROGRAM_LOADER = Template('''"""$title
On $device, compiled by $toolchain.

    kernel = load(A)     # SciPy, CuPy or torch sparse matrix with the $part that this kernel was tuned for
    y = kernel(x)        # CuPy, torch or NumPy array; the result is of the same kind

Needs: pip install sparsesmith cupy-cuda13x
"""

from sparsesmith.artifacts.launcher import Launcher, program_launcher
from sparsesmith.client.matrices import to_scipy
from sparsesmith_proto.kernel import Workload

WORKLOAD = Workload.model_validate_json($workload)

PROGRAM = $program


def load(matrix: object) -> Launcher:
    """The tuned kernel bound to a matrix. Raises InvalidMatrix for another $part, Unavailable without a GPU."""
    return program_launcher(PROGRAM, to_scipy(matrix), WORKLOAD)
''')

_LIBRARY_LOADER = Template('''"""$title

Nothing faster than $routine was found for this matrix: this loader calls the library.

    kernel = load(A)     # SciPy, CuPy or torch sparse matrix
    y = kernel(x)        # CuPy, torch or NumPy array; the result is of the same kind

Needs: pip install sparsesmith cupy-cuda13x
"""

from sparsesmith.artifacts.launcher import Launcher, library_launcher
from sparsesmith.client.matrices import to_scipy
from sparsesmith_proto.kernel import Workload

WORKLOAD = Workload.model_validate_json($workload)


def load(matrix: object) -> Launcher:
    """cuSPARSE bound to a matrix. Raises Unavailable without a GPU."""
    return library_launcher(to_scipy(matrix), WORKLOAD, $called)
''')

_TASK_LOADER = Template('''"""$title
$found

    kernel = load()
    $call     # CuPy, torch or NumPy arrays; the results are of the first one's kind

Needs: pip install sparsesmith cupy-cuda13x
"""

from sparsesmith.artifacts.task_launcher import TaskFunction
from sparsesmith_proto.kernel import Workload

WORKLOAD = Workload.model_validate_json($workload)

PROGRAM = $program


def load() -> TaskFunction:
    """The kernel. Raises Unavailable without a GPU, InvalidOption where the task is not known here."""
    return TaskFunction(PROGRAM, WORKLOAD)
''')


def python_loader(report: KernelReport) -> str:
    """The loader's text."""
    match report.answer:
        case TunedAnswer(best=best):
            return program_loader(extract_program(best.candidate.program), report.workload, report.device)
        case LibraryAnswer(routine=routine) if report.workload.pattern is None:
            found = f"Nothing faster than {routine} was found: this loader runs the task's own naive program."
            return _task_loader(_naive(report.workload), report.workload, found)
        case LibraryAnswer(routine=routine):
            return _LIBRARY_LOADER.substitute(
                _words(report.workload, report.device), routine=routine, called=repr(running_routine(report))
            )


def program_loader(program: str, workload: Workload, device: DeviceDescription) -> str:
    """Of a kernel program."""
    if workload.pattern is None:
        return _task_loader(program, workload, f"On {device.name}, compiled by {device.toolchain}.")
    return _PROGRAM_LOADER.substitute(_words(workload, device), program=_literal(program))


def _task_loader(program: str, workload: Workload, found: str) -> str:
    operands = operation_named(workload.operation).operands
    results = ", ".join(each.name for each in operands if each.role in ("inout", "output"))
    inputs = ", ".join(each.name for each in operands if each.role in ("input", "inout"))
    sizes = ", ".join(f"{name}={size}" for name, size in workload.axes.items())
    return _TASK_LOADER.substitute(
        title=f"Tuned by sparsesmith: {workload.operation} {workload.element_type}{f' for {sizes}' if sizes else ''}.",
        found=found,
        call=f"{results} = kernel({inputs})",
        workload=_literal(workload.model_dump_json()),
        program=_literal(program),
    )


def _naive(workload: Workload) -> str:
    """Of the task: the program that others were compared with, for what it is called."""
    operation = operation_named(workload.operation)
    name = baseline_of(operation, deterministic=workload.deterministic)
    return with_element_type(operation.programs[name], workload.element_type)


def _words(workload: Workload, device: DeviceDescription) -> dict[str, str]:
    digest = (workload.pattern or "")[:12]
    title = f"Tuned by sparsesmith: {workload.operation} {workload.element_type} for pattern {digest}."
    part = "pattern" if workload.values is None else "pattern and the values"
    return {
        "title": title,
        "device": device.name,
        "toolchain": device.toolchain,
        "part": part,
        "workload": _literal(workload.model_dump_json()),
    }


def _literal(text: str) -> str:
    """The text as a readable Python literal, whatever it holds."""
    is_plain = all(character.isprintable() or character in "\t\n" for character in text)
    if "\n" not in text or not is_plain or '"""' in text or "\\" in text or text.endswith('"'):
        return repr(text)
    return f'"""{text}"""'
