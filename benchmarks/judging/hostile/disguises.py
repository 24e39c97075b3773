"""Disguises: other texts of the same statement."""

import random
from collections.abc import Callable

Disguise = Callable[[str, str, random.Random], tuple[str, str]]
"""Of a deed: what stands before the kernel, and the statement."""


def _as_it_is(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return before, deed


def _in_a_macro(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return f"{before}\n#define DEED {' '.join(deed.split())}", "DEED"


def _in_a_macro_of_parts(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    words = deed.split(" ")
    middle = chance.randrange(1, max(2, len(words)))
    return f"{before}\n#define ONE {' '.join(words[:middle])}\n#define TWO {' '.join(words[middle:])}", "ONE TWO"


def _in_a_lambda(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return before, f"[&] {{ {deed} }}();"


def _in_a_loop(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return before, f"for (int round = 0; round < {chance.randint(1, 3)}; round++) {{ {deed} }}"


def _in_a_condition(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return before, f"if (nnz > 0 && num_rows > {chance.randint(0, 9)}) {{ {deed} }}"


def _behind_a_digraph(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return (
        f"constexpr int two = 2;\n{before}",
        f"{{ int at[3] = {{0, 1, 2}}; int k = at<:::two]; if (k == 2) {{ {deed} }} }}",
    )


def _between_comments(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    opening = chance.choice(["// */ /*", '/* " */', "/* // */", "// \\\\ ", "/**/"])
    return before, f"{opening}\n{deed}\n{chance.choice(['//', '/* */', ''])}"


def _behind_a_condition_of_the_preprocessor(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    return before, f"\n#if defined(__CUDA_ARCH__) || {chance.randint(0, 1)}\n{deed}\n#endif\n"


def _over_lines(before: str, deed: str, chance: random.Random) -> tuple[str, str]:
    place = chance.randrange(len(deed))
    return before, f"{deed[:place]}\\\n{deed[place:]}"


DISGUISES: dict[str, Disguise] = {
    "plain": _as_it_is,
    "macro": _in_a_macro,
    "macro of parts": _in_a_macro_of_parts,
    "lambda": _in_a_lambda,
    "loop": _in_a_loop,
    "condition": _in_a_condition,
    "digraph": _behind_a_digraph,
    "comments": _between_comments,
    "preprocessor": _behind_a_condition_of_the_preprocessor,
    "spliced": _over_lines,
}

WITHOUT_BRACES = ("plain", "macro", "macro of parts", "comments", "preprocessor", "spliced")
"""What it declares is seen behind it."""
