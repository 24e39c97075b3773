"""A device that is made in a process which the kernel holds from its first instruction on."""

from dataclasses import dataclass

from services.evaluator.confinement.profile import Profile, confine
from services.evaluator.device import Device
from services.evaluator.isolation.child import PRELOADED, DeviceFactory
from sparsesmith.errors import Unavailable
from sparsesmith_proto.kernel import DeviceDescription


@dataclass(frozen=True)
class Confined:
    """A factory whose device's process is confined before it makes the device.

    What it does not hold: where the process was spawned, threads that libraries started while they were imported (of
    linear algebra) are held by seccomp and not by Landlock; what the device's caches hold is read again by later ones.
    """

    factory: DeviceFactory
    profile: Profile

    @property
    def preloaded(self) -> tuple[str, ...]:
        """See `child.PRELOADED`."""
        modules: tuple[str, ...] = getattr(self.factory, PRELOADED, ())
        return modules

    def __call__(self, known: DeviceDescription | None = None) -> Device:
        try:
            confine(self.profile)
        except OSError as error:
            raise Unavailable(f"the device's process cannot be confined: {error}") from error
        return self.factory(known)
