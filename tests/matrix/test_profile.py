"""The curve of row lengths and the reuse of columns."""

import numpy as np
import pytest

from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.matrix.profile import COLUMN_USES, PROFILE_NAMES, RUN_NNZ, profile_features
from sparsesmith.prompts.circumstances import CIRCUMSTANCE_NAMES, circumstance_features


def profile_of(pattern: Pattern) -> dict[str, float]:
    return dict(zip(PROFILE_NAMES, profile_features(pattern).tolist(), strict=True))


def rows_of_lengths(*lengths: int, num_cols: int = 10_000) -> Pattern:
    """Columns that no two rows share."""
    rows = np.repeat(np.arange(len(lengths)), lengths)
    return pattern_from_indices(len(lengths), num_cols, rows, np.arange(rows.size))


def test_the_curve_says_which_share_of_rows_and_nonzeros_lies_in_rows_up_to_a_length() -> None:
    profile = profile_of(rows_of_lengths(0, 1, 1, 3, 5000))
    assert [profile[f"rows_up_to_{length}"] for length in (0, 1, 2, 3, 4096)] == pytest.approx(
        [0.2, 0.6, 0.6, 0.8, 0.8]
    )
    shares = [profile[f"nonzeros_in_rows_up_to_{length}"] for length in (0, 1, 3, 4096)]
    assert shares == pytest.approx([0, 2 / 5005, 5 / 5005, 5 / 5005])


def test_two_matrices_whose_rows_differ_by_one_nonzero_have_different_curves() -> None:
    """The error that the first policy made: a width of 3 where 4 was needed."""
    assert profile_of(rows_of_lengths(3, 3, 3))["rows_up_to_3"] == 1.0
    assert profile_of(rows_of_lengths(3, 3, 4))["rows_up_to_3"] == pytest.approx(2 / 3)


def test_columns_that_come_again_are_counted_in_runs_and_over_all() -> None:
    """256 rows over the same 4 columns, beside as many that share nothing."""
    rows = np.repeat(np.arange(256), 4)
    shared = pattern_from_indices(256, 5000, rows, np.tile(np.arange(4) * 1000, 256))
    alone = rows_of_lengths(*([4] * 256))
    again, once = profile_of(shared), profile_of(alone)
    for nnz, reuse in zip(RUN_NNZ, (16, 64, 256, 256), strict=True):
        assert again[f"log_column_reuse_in_{nnz}"] == pytest.approx(np.log2(reuse) / 4)
        assert once[f"log_column_reuse_in_{nnz}"] == 0.0
        assert once[f"log_sector_reuse_in_{nnz}"] == pytest.approx(3 / 4)
    assert [again[f"nonzeros_in_columns_of_{uses}"] for uses in COLUMN_USES] == [1.0] * len(COLUMN_USES)
    assert [once[f"nonzeros_in_columns_of_{uses}"] for uses in COLUMN_USES] == [0.0] * len(COLUMN_USES)


@pytest.mark.parametrize("nnz", [1, 63, 400_000])
def test_every_feature_is_finite_and_of_moderate_size(nnz: int) -> None:
    generator = np.random.default_rng(nnz)
    pattern = pattern_from_indices(900, 700, generator.integers(900, size=nnz), generator.integers(700, size=nnz))
    features = profile_features(pattern)
    assert features.shape == (len(PROFILE_NAMES),)
    assert np.isfinite(features).all()
    assert (np.abs(features) <= 3).all()


def test_a_device_of_which_nothing_is_known_is_told_apart_from_a_small_one() -> None:
    def told(num_sms: int | None) -> dict[str, float]:
        found = circumstance_features(32, "float64", num_sms, None if num_sms is None else 1.0)
        return dict(zip(CIRCUMSTANCE_NAMES, found.tolist(), strict=True))

    assert told(None) == {**told(1), "device_known": 0.0}
    assert told(1)["dense_cols_by_32"] == told(1)["dense_cols_by_4"] == 1.0
    assert told(132)["log_sms"] > told(78)["log_sms"] > 0
