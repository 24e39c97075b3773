"""What an order that fixes the values adds to the families: some made for it, and general programs compressed."""

from services.generator.search.standing import Batch
from services.generator.task import TuningTask
from sparsesmith.families.fixed.proposal import own_instances
from sparsesmith.matrix.values import FixedValues


def fixed_value_families(task: TuningTask, values: FixedValues, limit: int) -> Batch:
    """Programs of the families for fixed values, likely winners first; none where rows and values hardly repeat."""
    workload = task.order.workload
    instances = own_instances(task.problem.pattern, values, workload.operation, workload.element_type)
    return tuple(instance.candidate(f"{task.run_id}-v{number}") for number, instance in enumerate(instances[:limit]))
