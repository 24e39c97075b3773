"""Which routines of cuSPARSE apply to an operation (needs no device)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sparsesmith_proto.message import Operation

DEFAULT_ROUTINE = "cusparse_csr_default"
"""What a user gets who does not choose."""
DETERMINISTIC_DEFAULTS: Mapping[Operation, str] = {
    "spmv": "cusparse_csr_alg2",
    "spmm": "cusparse_csr_alg3",
    "spmv_t": "cusparse_copy_csr_alg2",
}
"""What a user gets who asks for equal bits and chooses nothing else: CSR, as above."""
BLOCK_SIZES = (2, 3, 4, 8)
ELL_BLOCK_SIZES = (8, 16, 32, 64)
"""Of blocked ELL; the library's documentation recommends large powers of two."""

SPMV_ALGORITHMS = {
    "default": 0,
    "coo_alg1": 1,
    "csr_alg1": 2,
    "csr_alg2": 3,
    "coo_alg2": 4,
    "sell_alg1": 5,
    "bsr_alg1": 6,
}
"""cusparseSpMVAlg_t of cusparse.h 12.x."""

SPMM_ALGORITHMS = {
    "default": 0,
    "coo_alg1": 1,
    "coo_alg2": 2,
    "coo_alg3": 3,
    "csr_alg1": 4,
    "coo_alg4": 5,
    "csr_alg2": 6,
    "csr_alg3": 12,
    "blocked_ell_alg1": 13,
    "bsr_alg1": 14,
}
"""cusparseSpMMAlg_t of cusparse.h 12.x."""


SPMVOP_ALGORITHMS = {"alg1": 1, "alg2": 2}
"""cusparseSpMVOpAlg_t of cusparse.h 12.9."""

Kind = Literal["csr", "lower", "coo", "sell", "bsr", "blocked_ell"]
"""`lower`: CSR of the lower triangle of a symmetric matrix, of which the library takes the upper to be the mirror."""

Function = Literal["product", "plan", "descriptor"]
"""How the library is called: `cusparseSpMV` and `cusparseSpMM`; `cusparseSpMVOp`, a plan for one matrix;
`cusparseSpMVGeneric`, whose descriptor holds what was preprocessed."""

NEEDED: Mapping[Function, str] = {"plan": "cusparseSpMVOp", "descriptor": "cusparseSpMVGeneric"}
"""Symbols that only newer libraries have, as this file's calls are written for them: 12.9."""


@dataclass(frozen=True)
class Storage:
    """One of the library's formats."""

    kind: Kind
    block_size: int = 1
    """Of bsr and blocked ELL."""
    is_transposed: bool = False
    """Whether it is a copy of A^T that is stored."""


@dataclass(frozen=True)
class Routine:
    """One way to call the library."""

    name: str
    storage: Storage
    algorithm: int
    function: Function = "product"


_SPMV_ROUTINES: tuple[tuple[Kind, str], ...] = (
    ("csr", "default"), ("csr", "csr_alg1"), ("csr", "csr_alg2"),
    ("coo", "default"), ("coo", "coo_alg1"), ("coo", "coo_alg2"),
    ("sell", "sell_alg1"), ("bsr", "default"), ("bsr", "bsr_alg1"),
)  # fmt: skip
_SPMM_ROUTINES: tuple[tuple[Kind, str], ...] = (
    ("csr", "default"), ("csr", "csr_alg1"), ("csr", "csr_alg2"), ("csr", "csr_alg3"),
    ("coo", "default"), ("coo", "coo_alg1"), ("coo", "coo_alg2"), ("coo", "coo_alg3"), ("coo", "coo_alg4"),
    ("bsr", "default"), ("bsr", "bsr_alg1"), ("blocked_ell", "blocked_ell_alg1"),
)  # fmt: skip


_BEYOND_PRODUCTS = (
    Routine("cusparse_spmvop_alg1", Storage("csr"), SPMVOP_ALGORITHMS["alg1"], "plan"),
    Routine("cusparse_spmvop_alg2", Storage("csr"), SPMVOP_ALGORITHMS["alg2"], "plan"),
    Routine("cusparse_generic_csr", Storage("csr"), SPMV_ALGORITHMS["default"], "descriptor"),
)
"""Of spmv. The library's documentation does not say whether they give equal bits in every run."""

_HALF_STORED = Routine("cusparse_generic_lower", Storage("lower"), SPMV_ALGORITHMS["default"], "descriptor")
"""Of spmv with a matrix whose values are known to be symmetric, since 12.9. The library says itself that the result is
not deterministic."""

_DETERMINISTIC: Mapping[Operation, tuple[str, ...]] = {
    "spmv": ("coo_alg2", "csr_alg2", "sell_alg1"),
    "spmm": ("coo_alg2", "csr_alg3"),
}
"""Algorithms of which the library's documentation says "provides deterministic (bit-wise) results for each run", for A
as it is; it says so of no others."""

_ROUTINES: Mapping[Operation, tuple[tuple[tuple[Kind, str], ...], Mapping[str, int]]] = {
    "spmv": (_SPMV_ROUTINES, SPMV_ALGORITHMS),
    "spmm": (_SPMM_ROUTINES, SPMM_ALGORITHMS),
}


TRANSPOSED: Mapping[Operation, Operation] = {"spmv_t": "spmv"}
"""Operations with A^T, and those that they are with A."""

_OF_TRANSPOSED: tuple[tuple[Kind, str], ...] = (
    ("csr", "default"), ("csr", "csr_alg1"), ("csr", "csr_alg2"),
    ("coo", "default"), ("coo", "coo_alg1"), ("coo", "coo_alg2"),
)  # fmt: skip
"""With op(A) = T; the library's documentation promises equal bits of none of them."""

_COPY = "cusparse_copy_"
"""What names of routines on a copy of A^T begin with."""


def callable_routines(operation: Operation, *, deterministic: bool) -> tuple[Routine, ...]:
    """Those that an operator can call: on CSR or COO, whose values lie as those of A do, and in calls that read
    vectors and values anew each time. A plan holds the values: a captured graph would go on with the old ones. None of
    A^T from A as it is stored."""
    if operation in TRANSPOSED:
        return ()
    listed = routines_for(operation, (), deterministic=deterministic)
    return tuple(each for each in listed if each.storage.kind in ("csr", "coo") and each.function == "product")


def default_routine(operation: Operation, *, deterministic: bool) -> str:
    """What a user gets who does not choose."""
    return DETERMINISTIC_DEFAULTS[operation] if deterministic else DEFAULT_ROUTINE


def _has_nothing_new(_: str) -> bool:
    return False


def routines_for(
    operation: Operation,
    block_sizes: tuple[int, ...],
    ell_block_sizes: tuple[int, ...] = (),
    *,
    is_symmetric: bool = False,
    deterministic: bool = False,
    has: Callable[[str], bool] = _has_nothing_new,
) -> tuple[Routine, ...]:
    """The routines of an operation, or those of them that give equal bits in every run; those on BSR and on
    blocked ELL once for each block size. `is_symmetric`: whether the values of A are known, and the same across its
    diagonal. `has`: whether the library has one of the NEEDED symbols."""
    if operation in TRANSPOSED:
        plain = routines_for(TRANSPOSED[operation], block_sizes, deterministic=deterministic, has=has)
        return (*_of_transposed(deterministic, has), *map(_on_a_copy, plain))
    pairs, algorithms = _ROUTINES.get(operation, ((), {}))
    if deterministic:
        pairs = tuple(pair for pair in pairs if pair[1] in _DETERMINISTIC[operation])
    sizes = {"bsr": block_sizes, "blocked_ell": ell_block_sizes}
    routines: list[Routine] = []
    for kind, algorithm in pairs:
        suffix = algorithm.removeprefix(f"{kind}_")
        for storage in [Storage(kind, size) for size in sizes[kind]] if kind in sizes else [Storage(kind)]:
            size = storage.block_size if kind in sizes else ""
            routines.append(Routine(f"cusparse_{kind}{size}_{suffix}", storage, algorithms[algorithm]))
    if operation == "spmv" and not deterministic:
        newer = (*_BEYOND_PRODUCTS, _HALF_STORED) if is_symmetric else _BEYOND_PRODUCTS
        routines += [routine for routine in newer if has(NEEDED[routine.function])]
    return tuple(routines)


def _of_transposed(deterministic: bool, has: Callable[[str], bool]) -> tuple[Routine, ...]:
    """On A as it is stored."""
    if deterministic:
        return ()
    products = tuple(
        Routine(f"cusparse_{kind}_{algorithm.removeprefix(f'{kind}_')}", Storage(kind), SPMV_ALGORITHMS[algorithm])
        for kind, algorithm in _OF_TRANSPOSED
    )
    return (*products, *(routine for routine in _BEYOND_PRODUCTS if has(NEEDED[routine.function])))


def _on_a_copy(routine: Routine) -> Routine:
    storage = replace(routine.storage, is_transposed=True)
    return replace(routine, name=f"{_COPY}{routine.name.removeprefix('cusparse_')}", storage=storage)
