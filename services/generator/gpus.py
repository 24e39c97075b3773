"""Which kind of GPU a request means: by its name, also without the vendor's, or by a generation that one kind has."""

import asyncio
from collections.abc import Iterable, Sequence

from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.transport.gpu_kinds import GpuKind, GpuKinds

VENDOR = "nvidia "


class Gpus:
    """Those of the evaluators that live now."""

    def __init__(self, kinds: GpuKinds) -> None:
        self._kinds = kinds

    async def named(self, asked: str | None, earlier: str | None = None) -> str | None:
        """The whole name of the kind that a request asks for; None where it asks for none.

        `earlier`: the kind that the same request meant when it came before; it still does, whoever left or joined
        meanwhile.

        Raises InvalidOption where no evaluator has such a kind, or several kinds fit; Unavailable where there is no
        evaluator at all.
        """
        if asked is None:
            return None
        if earlier is not None:
            kind = await self.kind(earlier)
            if _fits(asked, earlier, "" if kind is None else kind.architecture):
                return earlier
        return chosen(asked, tuple(await asyncio.to_thread(self._kinds.living))).name

    async def kind(self, name: str | None) -> GpuKind | None:
        """What is known of a kind, there or not. Raises Unavailable."""
        if name is None:
            return None
        known = await asyncio.to_thread(self._kinds.known)
        return next((kind for kind in known.values() if kind.name == name), None)

    async def names(self) -> Sequence[str]:
        """Of those that are there; none where the store does not answer."""
        try:
            return [kind.name for kind in await asyncio.to_thread(self._kinds.living)]
        except Unavailable:
            return []


def chosen(asked: str, living: Sequence[GpuKind]) -> GpuKind:
    """See `Gpus.named`."""
    if not living:
        raise Unavailable("gpu: no evaluator is there, so no kind of GPU is", field="gpu", value=asked, limit="none")
    fitting = [kind for kind in living if _fits(asked, kind.name, kind.architecture)]
    if len(fitting) == 1:
        return fitting[0]
    names = _listed(fitting or living)
    what = (
        "is the generation of several kinds: name one of"
        if fitting
        else "is no kind of GPU of an evaluator here: there are"
    )
    raise InvalidOption(f"gpu: {asked!r} {what} {names}", field="gpu", value=asked, limit=names)


def _fits(asked: str, name: str, architecture: str) -> bool:
    name = name.lower()
    return asked.strip().lower() in (name, name.removeprefix(VENDOR), architecture)


def _listed(kinds: Iterable[GpuKind]) -> str:
    return ", ".join(f"{kind.name} ({kind.architecture})" for kind in kinds)
