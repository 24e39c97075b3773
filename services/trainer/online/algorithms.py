"""The objectives there are: ours, and those that other packages register by entry point."""

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points

from services.trainer.online.algorithm import Algorithm, LearnerOptions
from services.trainer.online.expert import Expert
from services.trainer.online.ppo import Ppo
from services.trainer.online.rloo import Rloo
from sparsesmith.errors import InvalidOption

ENTRY_POINTS = "sparsesmith.algorithms"
"""Each is called with the learner's options and returns what keeps the Algorithm protocol; its name chooses it."""

MakeAlgorithm = Callable[[LearnerOptions], Algorithm]

OURS: Mapping[str, MakeAlgorithm] = {"rloo": Rloo, "ppo": Ppo, "expert": Expert}

_PARTS = ("needs_critic", "averages_over", "targets", "losses")


def algorithm_of(options: LearnerOptions) -> Algorithm:
    """The one that the options name. Raises InvalidOption, listing what there is, or naming the part that it lacks."""
    name, registered = options.algorithm, _registered()
    make = OURS.get(name)
    if make is None and name not in registered:
        known = ", ".join([*OURS, *registered])
        raise InvalidOption(
            f"algorithm {name!r} is unknown (known: {known})", field="algorithm", value=name, limit=known
        )
    algorithm: Algorithm = (make or registered[name].load())(options)
    for part in _PARTS:
        if not hasattr(algorithm, part):
            raise InvalidOption(f"algorithm {name}: {part} is missing", field=part, value=name)
    return algorithm


def _registered() -> Mapping[str, EntryPoint]:
    """By name; nothing is loaded that is not chosen. Raises InvalidOption for one that takes a name of ours."""
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    for name in OURS.keys() & found.keys():
        raise InvalidOption(f"algorithm {name}: {found[name].value} takes the name of ours", field="name", value=name)
    return found
