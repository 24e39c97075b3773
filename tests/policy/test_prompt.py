"""Prompt arrays: deterministic, finite, and telling of what they should tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.prompts.arrays import (
    ENCODER_KINDS,
    NUM_WINDOWS,
    SINGLE_NONZEROS,
    EncoderKind,
    PromptInputs,
    code_width,
    prompt_inputs,
)
from sparsesmith.prompts.circumstances import CIRCUMSTANCE_NAMES
from sparsesmith.prompts.header import HEADER_SIZES, header
from sparsesmith.prompts.positions import (
    SINUSOIDAL_WIDTH,
    STRUCTURAL_WIDTH,
    contains,
    min_max_codes,
    nonzeros_at,
    raw_codes,
    sinusoidal,
    structural_codes,
)
from sparsesmith.prompts.stand_ins import MAX_NONZEROS, _made, stand_in
from sparsesmith_proto.kernel import Prompt, Workload


def make_pattern(num_rows: int = 200, num_cols: int = 150, nnz: int = 900, seed: int = 0) -> Pattern:
    generator = np.random.default_rng(seed)
    return pattern_from_indices(
        num_rows, num_cols, generator.integers(num_rows, size=nnz), generator.integers(num_cols, size=nnz)
    )


def make_prompt(**changes: object) -> Prompt:
    return Prompt.model_validate({"encoder": "structural", "sample_seed": 7, "architecture": "sm_90", **changes})


def inputs_of(pattern: Pattern, **changes: object) -> PromptInputs:
    workload = Workload(pattern=pattern.digest, operation="spmm", element_type="float64", num_dense_cols=32)
    return prompt_inputs(pattern, workload, make_prompt(**changes))


def arrays(inputs: PromptInputs) -> list[np.ndarray]:
    return [inputs.header_ids, inputs.features, inputs.points, inputs.mask, inputs.windows]


@pytest.mark.parametrize("encoder", ENCODER_KINDS)
def test_the_same_prompt_gives_the_same_arrays(encoder: str) -> None:
    first, second = inputs_of(make_pattern(), encoder=encoder), inputs_of(make_pattern(), encoder=encoder)
    assert all(np.array_equal(one, other) for one, other in zip(arrays(first), arrays(second), strict=True))


@pytest.mark.parametrize("encoder", [each for each in ENCODER_KINDS if each not in ("features", "blind")])
def test_another_seed_shows_other_nonzeros_and_the_same_features(encoder: str) -> None:
    first, second = (
        inputs_of(make_pattern(nnz=3000), encoder=encoder),
        inputs_of(make_pattern(nnz=3000), encoder=encoder, sample_seed=8),
    )
    assert np.array_equal(first.features, second.features)
    assert not np.array_equal(first.points, second.points)


def test_a_text_prompt_has_no_arrays() -> None:
    with pytest.raises(InvalidOption, match="text prompt"):
        inputs_of(make_pattern(), encoder="text")


@settings(max_examples=60, deadline=None)
@given(
    num_rows=st.integers(1, 300),
    num_cols=st.integers(1, 300),
    nnz=st.integers(1, 2000),
    seed=st.integers(0, 2**31),
    encoder=st.sampled_from([each for each in ENCODER_KINDS if each not in ("features", "blind")]),
)
def test_any_pattern_gives_finite_bounded_arrays_of_fixed_shape(
    num_rows: int, num_cols: int, nnz: int, seed: int, encoder: EncoderKind
) -> None:
    inputs = inputs_of(make_pattern(num_rows, num_cols, nnz, seed), encoder=encoder, sample_seed=seed)
    tokens = SINGLE_NONZEROS[encoder].count if encoder in SINGLE_NONZEROS else NUM_WINDOWS
    assert inputs.points.shape == (tokens, inputs.mask.shape[1], code_width(inputs.encoder))
    assert np.isfinite(inputs.points).all() and np.abs(inputs.points).max() <= 5
    assert np.isfinite(inputs.windows).all() and np.abs(inputs.windows).max() <= 5
    assert inputs.mask.any()
    assert not inputs.points[~inputs.mask].any()


def test_a_heavy_row_is_seen_by_the_windows_placed_over_nonzeros() -> None:
    num_rows = 100_000
    rows = np.concatenate([np.arange(num_rows), np.full(50_000, 77_777)])
    cols = np.concatenate([np.zeros(num_rows, np.int64), np.arange(50_000)])
    pattern = pattern_from_indices(num_rows, num_rows, rows, cols)
    longest = inputs_of(pattern).windows[:, 2]
    assert longest.max() == pytest.approx(np.log2(1 + 50_000) / 4, rel=0.01)


def test_sinusoidal_codes_are_those_of_the_paper() -> None:
    code = sinusoidal(np.array([3], np.int64))[0]
    rates = 10000.0 ** (-np.arange(0, SINUSOIDAL_WIDTH, 2) / SINUSOIDAL_WIDTH)
    assert np.allclose(code[0::2], np.sin(3 * rates), atol=1e-6)
    assert np.allclose(code[1::2], np.cos(3 * rates), atol=1e-6)


def test_coordinates_are_shown_as_shares_of_the_matrix_or_as_they_are() -> None:
    pattern = pattern_from_indices(101, 201, np.array([0, 50, 100]), np.array([200, 100, 0]))
    nonzeros = nonzeros_at(pattern, np.arange(3))
    assert np.allclose(min_max_codes(pattern, nonzeros), np.array([[0, 1], [0.5, 0.5], [1, 0]]))
    assert np.array_equal(raw_codes(nonzeros) * 2**16, [[0, 200], [50, 100], [100, 0]])
    corner = pattern_from_indices(1, 1, np.array([0]), np.array([0]))
    assert np.array_equal(min_max_codes(corner, nonzeros_at(corner, np.zeros(1, np.int64))), [[0, 0]])


def test_what_is_blind_is_told_what_is_asked_for_and_nothing_of_the_matrix() -> None:
    one, other = (inputs_of(make_pattern(seed=seed), encoder="blind") for seed in (0, 1))
    assert all(np.array_equal(mine, its) for mine, its in zip(arrays(one), arrays(other), strict=True))
    assert np.array_equal(one.header_ids, inputs_of(make_pattern(), encoder="profiled").header_ids)
    assert np.array_equal(one.features[-len(CIRCUMSTANCE_NAMES) :], features_of("profiled")[-len(CIRCUMSTANCE_NAMES) :])
    assert not one.features[: -len(CIRCUMSTANCE_NAMES)].any()


def test_what_is_shuffled_is_shown_a_made_matrix_and_told_what_is_asked_for() -> None:
    one, other = (inputs_of(make_pattern(seed=seed), encoder="shuffled") for seed in (0, 1))
    true = inputs_of(make_pattern(), encoder="profiled")
    shown = inputs_of(stand_in(make_pattern()), encoder="profiled")
    assert all(np.array_equal(mine, its) for mine, its in zip(arrays(one), arrays(shown), strict=True))
    for wrong in (other, true):
        assert not np.array_equal(one.features, wrong.features)
        assert not np.array_equal(one.windows, wrong.windows)
    assert np.array_equal(one.header_ids, true.header_ids)
    assert np.array_equal(one.features[-len(CIRCUMSTANCE_NAMES) :], true.features[-len(CIRCUMSTANCE_NAMES) :])


FIRST_STAND_IN = "5981fd0bf75f"
"""Of its digest: other numbers from the same seed would be other matrices for whoever goes on with a course."""


def test_made_matrices_are_of_many_kinds_and_one_matrix_always_has_the_same() -> None:
    patterns = [make_pattern(seed=seed) for seed in range(40)]
    made = [stand_in(each) for each in patterns]
    _made.cache_clear()  # Generator and trainer are two processes.
    assert [stand_in(each).digest for each in patterns] == [each.digest for each in made]
    assert len({each.digest for each in made}) > 30
    assert _made(0).digest.startswith(FIRST_STAND_IN)
    means = [each.nnz / each.num_rows for each in made]
    assert min(means) < 3 and max(means) > 20
    assert all(0 < each.nnz <= MAX_NONZEROS for each in made)
    steady = [float(each.row_lengths.std()) < 0.5 * each.nnz / each.num_rows for each in made]
    assert 5 < sum(steady) < 35, "rows of equal lengths, and others"
    near = [float(np.median(np.abs(each.row_indices() - each.col_indices))) < each.num_rows / 16 for each in made]
    assert 5 < sum(near) < 35, "bands, and nonzeros anywhere"


def test_features_alone_are_those_of_the_profile() -> None:
    assert np.array_equal(features_of("features"), features_of("profiled"))
    shown = inputs_of(make_pattern(), encoder="features")
    assert not shown.mask.any() and not shown.points.any() and not shown.windows.any()


def features_of(encoder: EncoderKind) -> np.ndarray:
    return inputs_of(make_pattern(), encoder=encoder).features


def test_contains_agrees_with_the_dense_matrix() -> None:
    pattern = make_pattern(30, 20, 150)
    dense = pattern.to_scipy(np.ones(pattern.nnz)).toarray() != 0
    rows, cols = np.meshgrid(np.arange(-2, 33), np.arange(-2, 23), indexing="ij")
    expected = np.zeros(rows.shape, bool)
    expected[2:32, 2:22] = dense
    assert np.array_equal(contains(pattern, rows, cols), expected)


def test_a_tridiagonal_matrix_moved_along_its_diagonal_keeps_all_but_its_coordinates() -> None:
    size = 1024
    rows = np.repeat(np.arange(size), 3)
    cols = rows + np.tile([-1, 0, 1], size)
    inside = (cols >= 0) & (cols < size)
    pattern = pattern_from_indices(size, size, rows[inside], cols[inside])
    here, there = (structural_codes(pattern, nonzeros_at(pattern, np.array([3 * row + 2]))) for row in (320, 640))
    coordinates = 22
    assert here.shape == (1, STRUCTURAL_WIDTH)
    assert np.allclose(here[:, coordinates:], there[:, coordinates:], atol=1e-5)
    assert not np.allclose(here[:, :coordinates], there[:, :coordinates], atol=1e-2)


def test_header_ids_stay_below_their_sizes_and_unknown_architectures_share_one() -> None:
    for columns in (1, 2, 33, 1024):
        ids = header("spmm", "float64", columns, "sm_90a")
        assert all(0 <= value < size for value, size in zip(ids, HEADER_SIZES, strict=True))
    assert header("spmv", "float32", 1, "sm_52")[3] == header("spmv", "float32", 1, "sm_999")[3] == 0
    assert header("spmm", "float32", 33, "sm_90")[2] == header("spmm", "float32", 64, "sm_90")[2] == 6
