"""What an evaluator allows the references of imported tasks."""

from dataclasses import dataclass

from services.evaluator.confinement.profile import available
from services.evaluator.device import Device
from services.evaluator.isolation.child import PRELOADED, DeviceFactory
from services.evaluator.references.client import ReferenceLimits, ReferenceProcess
from services.evaluator.settings import EvaluatorSettings
from sparsesmith.operations.imported.references import install
from sparsesmith_proto.kernel import DeviceDescription


def reference_limits(settings: EvaluatorSettings) -> ReferenceLimits:
    """Confined as far as this machine's kernel can, unless the settings say otherwise."""
    return ReferenceLimits(
        seconds=settings.reference_limit_s,
        memory_bytes=settings.reference_memory_mib << 20,
        takes_posted=settings.posted_tasks,
        is_confined=settings.confinement != "off" and (settings.confinement == "on" or available().seccomp),
    )


@dataclass(frozen=True)
class WithReferences:
    """A factory whose device's process asks references: theirs is started before it is confined itself."""

    factory: DeviceFactory
    limits: ReferenceLimits

    @property
    def preloaded(self) -> tuple[str, ...]:
        """See `child.PRELOADED`."""
        modules: tuple[str, ...] = getattr(self.factory, PRELOADED, ())
        return modules

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        install(ReferenceProcess(self.limits))
        return self.factory(known)
