"""Tasks for people and for programs."""

from collections.abc import Sequence

from sparsesmith.cli.columns import columns
from sparsesmith_proto.api import TaskCard, TaskOperand, TaskPage
from sparsesmith_proto.message import Axes


def print_tasks(tasks: Sequence[TaskCard], *, as_json: bool) -> None:
    """A line a task."""
    if as_json:
        print(TaskPage(tasks=tuple(tasks)).model_dump_json(indent=2))
        return
    print(columns(("task", "axes", "computes"), [(each.name, ",".join(each.axes), each.formula) for each in tasks]))


def print_task(task: TaskCard, *, as_json: bool) -> None:
    """All that is known of one."""
    if as_json:
        print(task.model_dump_json(indent=2))
        return
    print(f"{task.name}: {task.formula}")
    if task.text:
        print(task.text)
    print()
    rows = [(each.name, each.role, _shape(each), each.dtype, each.meaning) for each in task.operands]
    print(columns(("operand", "role", "shape", "type", ""), rows))
    print()
    print(f"element types: {', '.join(task.element_types)}")
    print(f"first programs: {', '.join(task.programs)}")
    sizes = task.sizes or (dict.fromkeys(task.axes, 1024),)
    print(f"measured at: {'; '.join(map(_spelled, task.sizes)) or 'no sizes of its own'}")
    print(f"try: sparsesmith tune --task {task.name} --axes {_spelled(sizes[0])}")


def _shape(operand: TaskOperand) -> str:
    return f"[{', '.join(operand.axes)}]" if operand.axes else "one number"


def _spelled(axes: Axes) -> str:
    return ",".join(f"{name}={size}" for name, size in axes.items())
