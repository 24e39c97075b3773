"""Small patterns for tests: builders and hypothesis strategies."""

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsesmith.formats.format import Format, IntegerRange, NumberList, OneOf, ParameterSpec, ParameterValue
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices

Mask = npt.NDArray[np.bool_]


def pattern_of(mask: Mask) -> Pattern:
    (num_rows, num_cols), (rows, cols) = mask.shape, np.nonzero(mask)
    return pattern_from_indices(num_rows, num_cols, rows, cols)


def make_pattern(*rows: str) -> Pattern:
    """`make_pattern("x..", ".xx")`: an `x` is a nonzero."""
    return pattern_of(np.array([[character == "x" for character in row] for row in rows]))


def mask_of(pattern: Pattern) -> Mask:
    mask = np.zeros((pattern.num_rows, pattern.num_cols), np.bool_)
    mask[pattern.row_indices(), pattern.col_indices] = True
    return mask


@st.composite
def patterns(draw: st.DrawFn, max_extent: int = 40) -> Pattern:
    """Random, one row, one column, empty rows, a dense row, rectangular, full."""
    extents = st.integers(1, max_extent)
    shape = draw(st.one_of(st.tuples(extents, extents), st.tuples(st.just(1), extents), st.tuples(extents, st.just(1))))
    mask = draw(
        st.one_of(arrays(np.bool_, shape, elements=st.booleans(), fill=st.just(False)), st.just(np.ones(shape, bool)))
    )
    mask = mask.copy()
    if draw(st.booleans()):
        mask[draw(st.integers(0, shape[0] - 1))] = True
    if draw(st.booleans()):
        mask[draw(st.integers(0, shape[0] - 1)) :: 2] = False
    if not mask.any():
        mask[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = True
    return pattern_of(mask)


def parameters_of(format_: Format) -> st.SearchStrategy[dict[str, ParameterValue]]:
    """Complete parameters, small numbers preferred: they cut small patterns into many pieces."""

    def values(spec: ParameterSpec) -> st.SearchStrategy[ParameterValue]:
        match spec:
            case OneOf():
                return st.sampled_from(spec.values)
            case IntegerRange():
                return st.one_of(
                    st.integers(spec.low, min(spec.low + 40, spec.high)), st.sampled_from([spec.default, spec.high])
                )
            case NumberList():
                listed = st.sets(st.integers(spec.low, min(spec.low + 40, spec.high)), max_size=spec.most - 1)
                return listed.map(lambda chosen: ",".join(map(str, sorted({*chosen, spec.high}))))

    complete = st.fixed_dictionaries({name: values(spec) for name, spec in format_.parameters.items()})
    # A tile of 32 slots may refuse a row of 40.
    return complete.filter(lambda given: (given.get("chunks"), given.get("vector")) != (1, 1))
