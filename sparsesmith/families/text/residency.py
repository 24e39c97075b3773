"""Part of the matrix kept in the L2 from one product to the next, the rest streamed past it.

A matrix somewhat larger than the L2 evicts itself in every product. Loads that carry a policy keep what the first
`keep` percent of the thread blocks read (evicted last) and let the rest go first, so that a repeated product reads less
from memory. It pays where little else uses the L2 between the products.

Source: PTX ISA, "createpolicy" and "cache eviction priority hints".
"""

from sparsesmith.families.text.program import Choice, vector
from sparsesmith.families.text.template import cuda_beside

_CUDA = cuda_beside(__name__)
_KINDS = {"float": ("f32", "f"), "double": ("f64", "d")}


def load_functions(choice: Choice, width: int) -> str:
    """Device functions `policy` and `load_by` for vectors of `width` values; none without a policy."""
    if choice.integer("keep") == 0:
        return ""
    kind, constraint = _KINDS[choice.scalar]
    fields = [f"v.{'xyzw'[i]}" for i in range(width)] if width > 1 else ["v"]
    registers = ", ".join(f"%{i}" for i in range(width))
    return choice.fill(
        _CUDA["policy"],
        V=vector(choice.scalar, width),
        instruction="ld.global.L1::no_allocate.L2::cache_hint" + (f".v{width}" if width > 1 else ""),
        kind=kind,
        to=f"{{{registers}}}" if width > 1 else registers,
        address=width,
        hint=width + 1,
        outputs=", ".join(f'"={constraint}"({field})' for field in fields),
    )


def choose_policy(choice: Choice) -> str:
    """Declares `hint`, the policy of a thread block's values."""
    kept = choice.integer("keep")
    return f"unsigned long long hint = policy(blockIdx.x * 100 < gridDim.x * {kept});" if kept else ""


def load_kept(choice: Choice, address: str) -> str:
    """A read of the matrix, by the policy where there is one."""
    return f"load_by({address}, hint)" if choice.integer("keep") else choice.load(address)


def value_kept(choice: Choice, width: int, index: str) -> str:
    """A read of `width` neighbouring values, by the policy where there is one."""
    if choice.integer("keep") == 0:
        return choice.value_vector(width, index)
    address = f"values + {index}"
    return load_kept(choice, address if width == 1 else f"(const {vector(choice.scalar, width)}*)({address})")


def streams_or_keeps(choice: Choice) -> bool:
    """A policy takes the place of `ldcs`: the two together say nothing new."""
    return choice.integer("keep") == 0 or choice.word("load") == "ldcs"
