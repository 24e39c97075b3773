"""Tasks that add up a term an entry: their programs, all but the naive one, which is in each folder."""

from collections.abc import Sequence

from sparsesmith.operations.texts import template_texts


def reduction_programs(task: str, inputs: Sequence[str], term: str, divisor: str = "") -> dict[str, str]:
    """`term`: what is added up, as an expression of the entries, which have the names of the inputs. `divisor`: what
    the sum is divided by in the end."""
    places = {
        "task": task,
        "arrays": ", ".join(f"const T* __restrict__ {name}" for name in inputs),
        "entries": ", ".join(f"T {name}" for name in inputs),
        "at_i": ", ".join(f"{name}[i]" for name in inputs),
        "loads": " ".join(f"Pack {name}_pack = ((const Pack*){name})[p];" for name in inputs),
        "at_j": ", ".join(f"{name}_pack.of[j]" for name in inputs),
        "term": term,
        "divided": f" / {divisor}" if divisor else "",
    }
    return template_texts(places, "partial_sums", "one_block", "block_sums")
