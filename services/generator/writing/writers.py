"""The writers that a service has, by name."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.generator.task import TuningTask
from services.generator.writing.model import Model, ModelOptions, ModelWriter
from services.generator.writing.mutation import MutationWriter
from services.generator.writing.writer import Writer
from sparsesmith.errors import InvalidOption
from sparsesmith.prompts.brief import Gpu
from sparsesmith_proto.api import Refinement

MUTATE = MutationWriter.name
NO_MODELS = ModelOptions(Gpu("sm_90"), 0)


@dataclass(frozen=True)
class Writers:
    """Mutation always; models as far as they are configured."""

    models: Sequence[Model] = ()
    options: ModelOptions = NO_MODELS

    @property
    def names(self) -> tuple[str, ...]:
        return (MUTATE, *(model.name for model in self.models))

    def check(self, refine: Refinement) -> None:
        """Raises InvalidOption for a writer that this service does not have."""
        if refine.writer is not None and refine.writer not in self.names:
            known = ", ".join(self.names)
            raise InvalidOption(
                f"refine.writer {refine.writer!r} is none of this service's (it has: {known})",
                field="refine.writer",
                value=refine.writer,
                limit=known,
            )

    def of(self, task: TuningTask) -> Writer:
        """For one search. Raises InvalidOption."""
        refine = task.order.options.refine
        self.check(refine)
        for model in self.models:
            if model.name == refine.writer:
                return ModelWriter(task, model, self.options)
        return MutationWriter(task)
