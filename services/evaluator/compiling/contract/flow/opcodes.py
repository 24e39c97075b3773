"""The instructions that a kernel may hold, by what they do with memory: any other counts as a store to anywhere."""

from typing import Literal

Kind = Literal["computes", "loads", "stores", "copies", "controls", "calls"]

_COMPUTES = (
    "abs activemask add addc and bfe bfi bfind bmsk brev clz cnot copysign cos createpolicy cvt cvta div dp2a "
    "dp4a elect ex2 fma fns getctarank isspacep lg2 lop3 mad mad24 madc match max min mma mov "
    "movmatrix mul mul24 neg not or popc prmt rcp redux rem rsqrt sad selp set setp shf shfl shl shr sin slct "
    "sqrt sub subc szext tanh testp vote xor"
)
_CONTROLS = (
    "bar barrier bra brx exit fence griddepcontrol membar nanosleep prefetch prefetchu applypriority ret trap pragma"
)
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(_COMPUTES.split(), "computes"),
    **dict.fromkeys(_CONTROLS.split(), "controls"),
    "ld": "loads",
    "ldu": "loads",
    "ldmatrix": "loads",
    "st": "stores",
    "red": "stores",
    "atom": "stores",
    "stmatrix": "stores",
    "cp": "copies",
    "mbarrier": "stores",
    "call": "calls",
    "wmma": "computes",
}
_OTHER_FORMS = frozenset({"tensor", "ignore-oob", "multicast::cluster", "tensormap", "sp"})


def kind_of(opcode: tuple[str, ...]) -> Kind | None:
    """None for an instruction that is not known."""
    name = opcode[0]
    if _OTHER_FORMS.intersection(opcode):
        return None
    if name == "wmma" and len(opcode) > 1:
        return {"load": "loads", "store": "stores", "mma": "computes"}.get(opcode[1])  # type: ignore[return-value]
    return _KINDS.get(name)


def space_of(part: str) -> str:
    """`shared` of `shared::cta`."""
    return part.partition("::")[0]


def space(opcode: tuple[str, ...]) -> str:
    """State space of an access; empty for a generic address."""
    spaces = ("global", "shared", "local", "param", "const")
    return next((space_of(part) for part in opcode[1:] if space_of(part) in spaces), "")
