"""Part of the matrix kept in the L2 from one product to the next, the rest streamed past it.

A matrix somewhat larger than the L2 evicts itself in every product. Loads that carry a policy keep what the first
`keep` percent of the thread blocks read (evicted last) and let the rest go first, so that a repeated product reads less
from memory. It pays where little else uses the L2 between the products.

Source: PTX ISA, "createpolicy" and "cache eviction priority hints".
"""

from sparsesmith.families.family import Choice
from sparsesmith.families.source import fill, load, scalar, vector
from sparsesmith.formats.format import OneOf

PERCENT_KEPT = (0, 10, 20, 30, 40, 50, 60, 80)

KEEP = OneOf(0, PERCENT_KEPT)
"""Percent of the thread blocks; 0: no policy."""

_POLICIES = """
__device__ __forceinline__ unsigned long long policy(bool is_kept) {
  unsigned long long kept, passing;
  asm("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(kept));
  asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(passing));
  return is_kept ? kept : passing;
}
""".strip()

_LOAD = """
__device__ __forceinline__ $V load_by($policy) {
  $V v;
  asm("$load.$kind $to, [%$address], %$hint;" : $outputs : "l"(p), "l"(policy));
  return v;
}
"""

_KINDS = {"float": ("f32", "f"), "double": ("f64", "d")}


def load_functions(choice: Choice, width: int) -> str:
    """Device functions `policy` and `load_by` for vectors of `width` values; none without a policy."""
    if choice.integer("keep") == 0:
        return ""
    c_type = scalar(choice.element_type)
    kind, constraint = _KINDS[c_type]
    wide = vector(c_type, width)
    fields = [f"v.{'xyzw'[i]}" for i in range(width)] if width > 1 else ["v"]
    places = ", ".join(f"%{i}" for i in range(width))
    return (
        _POLICIES
        + "\n"
        + fill(
            _LOAD,
            V=wide,
            policy=f"const {wide}* p, unsigned long long policy",
            load="ld.global.L1::no_allocate.L2::cache_hint" + (f".v{width}" if width > 1 else ""),
            kind=kind,
            to=f"{{{places}}}" if width > 1 else places,
            address=width,
            hint=width + 1,
            outputs=", ".join(f'"={constraint}"({field})' for field in fields),
        )
    )


def choose_policy(choice: Choice) -> str:
    """Declares `hint`, the policy of a thread block's values."""
    kept = choice.integer("keep")
    return f"unsigned long long hint = policy(blockIdx.x * 100 < gridDim.x * {kept});" if kept else ""


def with_functions(text: str, *functions: str) -> str:
    """A program with device functions before its kernel; empty ones are left out."""
    return text.replace('extern "C"', "\n".join([*filter(None, functions), 'extern "C"']))


def load_kept(choice: Choice, address: str) -> str:
    """A read of `values`, by the policy where there is one."""
    return f"load_by({address}, hint)" if choice.integer("keep") else load(choice.word("load"), address)


def streams_or_keeps(choice: Choice) -> bool:
    """A policy takes the place of `ldcs`: the two together say nothing new."""
    return choice.integer("keep") == 0 or choice.word("load") == "ldcs"
