"""The writers that a service has, by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.generator.task import TuningTask
from services.generator.writing.model import Model, ModelOptions, ModelWriter
from services.generator.writing.mutation import MutationWriter
from services.generator.writing.policy import POLICY, Editor, PolicyWriter
from services.generator.writing.writer import Writer
from sparsesmith.errors import InvalidOption
from sparsesmith.prompts.brief import Gpu
from sparsesmith_proto.api import Refinement
from sparsesmith_proto.kernel import Workload

MUTATE = "mutate"
NO_MODELS = ModelOptions(Gpu("sm_90"), 0)


@dataclass(frozen=True)
class Writers:
    """Mutation always; the policy and models as far as they are configured."""

    models: Sequence[Model] = ()
    options: ModelOptions = NO_MODELS
    editor: Editor | None = None
    """None: the service runs without a policy."""

    @property
    def names(self) -> tuple[str, ...]:
        policy = () if self.editor is None else (POLICY,)
        return (MUTATE, *policy, *(model.name for model in self.models))

    def check(self, refine: Refinement, workload: Workload) -> None:
        """Raises InvalidOption for a writer that this service does not have, or that does not write such programs."""
        if refine.writer is not None and refine.writer not in self.names:
            known = ", ".join(self.names)
            raise InvalidOption(
                f"refine.writer {refine.writer!r} is none of this service's (it has: {known})",
                field="refine.writer",
                value=refine.writer,
                limit=known,
            )
        if refine.writer == POLICY and self.editor is not None and not self.editor.writes(workload):
            described = f"{workload.operation} {workload.element_type}"
            raise InvalidOption(
                f"refine.writer {POLICY!r}: the policy writes no programs of {described}; {MUTATE!r} changes any",
                field="refine.writer",
                value=POLICY,
            )

    def of(self, task: TuningTask) -> Writer:
        """For one search. Raises InvalidOption."""
        refine = task.order.options.refine
        self.check(refine, task.order.workload)
        if refine.writer == POLICY and self.editor is not None:
            return PolicyWriter(task, self.editor, refine.children)
        for model in self.models:
            if model.name == refine.writer:
                return ModelWriter(task, model, self.options)
        return MutationWriter(task)
