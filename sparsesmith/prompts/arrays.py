"""What a prompt shows of a workload, as NumPy arrays: rebuilt from the pattern wherever it is needed.

The same pattern, workload and prompt give the same arrays, bit for bit, in the generator and in the trainer; so that
embeddings never travel.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from sparsesmith.errors import InvalidOption
from sparsesmith.matrix.features import FEATURE_NAMES, structural_features
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.matrix.profile import PROFILE_NAMES, profile_features
from sparsesmith.prompts.circumstances import CIRCUMSTANCE_NAMES, circumstance_features
from sparsesmith.prompts.header import header
from sparsesmith.prompts.positions import (
    SINUSOIDAL_WIDTH,
    STRUCTURAL_WIDTH,
    Codes,
    IntArray,
    Nonzeros,
    min_max_codes,
    nonzeros_at,
    raw_codes,
    sinusoidal_codes,
    structural_codes,
)
from sparsesmith.prompts.stand_ins import stand_in
from sparsesmith_proto.kernel import Parent, Prompt, Workload

EncoderKind = Literal[
    "structural", "sinusoidal", "profiled", "features", "shuffled", "blind", "sinusoidal_1024", "min_max", "raw_indices"
]
ENCODER_KINDS: tuple[EncoderKind, ...] = get_args(EncoderKind)

FEATURE_VERSIONS: Mapping[EncoderKind, int] = {
    **dict.fromkeys(ENCODER_KINDS, 1),
    **dict.fromkeys(("profiled", "features", "shuffled", "blind"), 2),
}
"""Of what each kind is shown. Rises whenever names or meanings change: a policy is bound to one version."""

PROFILED: frozenset[EncoderKind] = frozenset({"profiled", "features", "shuffled", "blind"})
"""These have all features in the same order; `features` shows no nonzeros beside them, `shuffled` a made matrix instead
of the right one, and `blind` zeros instead of what follows from the matrix: both say what is asked for."""

NUM_WINDOWS = 64
"""Matrix tokens of the structural encoder: windows of consecutive rows."""
WINDOW_ROWS = 32
POINTS_PER_WINDOW = 32
"""Sampled nonzeros that one window's token pools."""
BALANCED_WINDOWS = 16
"""Windows, of all, that are placed evenly over the nonzeros instead of evenly over the rows: they find heavy rows."""
WINDOW_WIDTH = 9


@dataclass(frozen=True)
class SingleNonzeros:
    """Matrix tokens that are a nonzero each."""

    count: int
    """Tokens."""
    width: int
    """Of a code."""
    codes: Callable[[Pattern, Nonzeros], Codes]


SINGLE_NONZEROS: Mapping[EncoderKind, SingleNonzeros] = {
    "sinusoidal": SingleNonzeros(128, 2 * SINUSOIDAL_WIDTH, lambda _, nonzeros: sinusoidal_codes(nonzeros)),
    "sinusoidal_1024": SingleNonzeros(1024, 2 * SINUSOIDAL_WIDTH, lambda _, nonzeros: sinusoidal_codes(nonzeros)),
    "min_max": SingleNonzeros(128, 2, min_max_codes),
    "raw_indices": SingleNonzeros(128, 2, lambda _, nonzeros: raw_codes(nonzeros)),
}
"""SparseRL's embedding and what its ablation compares it with. All other kinds show windows of rows."""


@dataclass(frozen=True, eq=False)
class PromptInputs:
    """What the encoder turns into soft tokens."""

    encoder: EncoderKind
    header_ids: IntArray
    """Operation, element type, bucket of num_dense_cols, architecture: shape [4], each below its HEADER_SIZES."""
    features: npt.NDArray[np.float32]
    """In the order of `feature_names`; encoders of single nonzeros do not look at them."""
    points: npt.NDArray[np.float32]
    """Codes of sampled nonzeros, shape [matrix tokens, points a token, code width]."""
    mask: npt.NDArray[np.bool_]
    """Which points are there, shape [matrix tokens, points a token]."""
    windows: npt.NDArray[np.float32]
    """What is known of a token's rows as a whole, shape [matrix tokens, WINDOW_WIDTH]."""
    parent: Parent | None
    """The program to refine, and its report."""


def prompt_inputs(pattern: Pattern, workload: Workload, prompt: Prompt) -> PromptInputs:
    """The arrays of a prompt. Raises InvalidOption for one that is written in another way, such as `text`."""
    kind = next((each for each in ENCODER_KINDS if each == prompt.encoder), None)
    if kind is None:
        known = ", ".join(ENCODER_KINDS)
        raise InvalidOption(
            f"a {prompt.encoder} prompt has no arrays", field="encoder", value=prompt.encoder, limit=known
        )
    header_ids = header(workload.operation, workload.element_type, workload.num_dense_cols, prompt.architecture)
    features = pattern_features(pattern, kind)
    if kind in PROFILED:
        device = prompt.num_sms, prompt.copy_bandwidth_gbs
        circumstances = circumstance_features(workload.num_dense_cols, workload.element_type, *device)
        features = np.concatenate([features, circumstances])
    return matrix_inputs(pattern, kind, prompt.sample_seed, header_ids, features, prompt.parent)


def pattern_features(pattern: Pattern, encoder: EncoderKind) -> npt.NDArray[np.float32]:
    """The features that follow from the matrix alone, which come first."""
    if encoder == "blind":
        return np.zeros(len(FEATURE_NAMES) + len(PROFILE_NAMES), np.float32)
    if encoder == "shuffled":
        pattern = stand_in(pattern)
    features = structural_features(pattern)
    return np.concatenate([features, profile_features(pattern)]) if encoder in PROFILED else features


def feature_names(encoder: EncoderKind) -> tuple[str, ...]:
    """Of all features, in order."""
    return (*FEATURE_NAMES, *PROFILE_NAMES, *CIRCUMSTANCE_NAMES) if encoder in PROFILED else FEATURE_NAMES


def matrix_inputs(
    pattern: Pattern,
    encoder: EncoderKind,
    sample_seed: int,
    header_ids: IntArray,
    features: npt.NDArray[np.float32],
    parent: Parent | None = None,
) -> PromptInputs:
    """As `prompt_inputs`, from its parts."""
    generator = np.random.Generator(np.random.PCG64(sample_seed))
    match encoder:
        case "structural" | "profiled":
            points, mask, windows = _window_tokens(pattern, generator)
        case "shuffled":
            points, mask, windows = _window_tokens(stand_in(pattern), generator)
        case "features" | "blind":
            points, mask, windows = _no_tokens()
        case _:
            points, mask, windows = _nonzero_tokens(pattern, generator, SINGLE_NONZEROS[encoder])
    return PromptInputs(encoder, header_ids, features, points, mask, windows, parent)


def code_width(encoder: EncoderKind) -> int:
    """Numbers that describe one sampled nonzero."""
    return SINGLE_NONZEROS[encoder].width if encoder in SINGLE_NONZEROS else STRUCTURAL_WIDTH


MatrixTokens = tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_], npt.NDArray[np.float32]]
"""Points, mask and windows, as in PromptInputs."""


def _no_tokens() -> MatrixTokens:
    """Windows that nothing is known of."""
    points = np.zeros((NUM_WINDOWS, POINTS_PER_WINDOW, STRUCTURAL_WIDTH), np.float32)
    return points, np.zeros(points.shape[:2], np.bool_), np.zeros((NUM_WINDOWS, WINDOW_WIDTH), np.float32)


def _window_tokens(pattern: Pattern, generator: np.random.Generator) -> MatrixTokens:
    first_rows = _window_rows(pattern, generator)
    last_rows = np.minimum(first_rows + WINDOW_ROWS, pattern.num_rows)
    begin = pattern.row_offsets[first_rows].astype(np.int64)
    end = pattern.row_offsets[last_rows].astype(np.int64)
    positions, mask = _points(begin, end, generator)
    nonzeros = nonzeros_at(pattern, np.minimum(positions, pattern.nnz - 1))
    codes = structural_codes(pattern, nonzeros) * mask[..., None]
    return codes.astype(np.float32), mask, _window_codes(pattern, first_rows, last_rows)


def _window_rows(pattern: Pattern, generator: np.random.Generator) -> IntArray:
    """First row of each window, ascending: some even over rows, some even over nonzeros, jittered, warp-aligned."""
    even = NUM_WINDOWS - BALANCED_WINDOWS
    by_row = (np.arange(even) + generator.random(even)) / even * pattern.num_rows
    by_nonzero = (np.arange(BALANCED_WINDOWS) + generator.random(BALANCED_WINDOWS)) / BALANCED_WINDOWS * pattern.nnz
    rows = np.concatenate([by_row.astype(np.int64), pattern.rows_of(by_nonzero.astype(np.int64))])
    return np.sort(np.minimum(rows, pattern.num_rows - 1) // WINDOW_ROWS * WINDOW_ROWS)


def _points(begin: IntArray, end: IntArray, generator: np.random.Generator) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Nonzeros of each window: half in one run, half spread evenly. Shape [windows, POINTS_PER_WINDOW]."""
    count, half = end - begin, POINTS_PER_WINDOW // 2
    start = begin + (generator.random(begin.size) * np.maximum(count - half, 0)).astype(np.int64)
    run = start[:, None] + np.arange(half)
    jitter = generator.random((begin.size, half))
    spread = begin[:, None] + ((np.arange(half) + jitter) / half * count[:, None]).astype(np.int64)
    positions = np.concatenate([run, np.minimum(spread, np.maximum(end - 1, begin)[:, None])], axis=1)
    return positions, (positions < end[:, None]) & (count > 0)[:, None]


def _window_codes(pattern: Pattern, first_rows: IntArray, last_rows: IntArray) -> npt.NDArray[np.float32]:
    """Row lengths of a window (least, mean, longest, spread, empty), columns spanned, where it lies, how full it is."""
    rows = np.minimum(first_rows[:, None] + np.arange(WINDOW_ROWS), last_rows[:, None] - 1)
    lengths = pattern.row_lengths[rows].astype(np.float64)
    filled = lengths > 0
    last_nonzero = pattern.nnz - 1
    lowest = pattern.col_indices[np.minimum(pattern.row_offsets[rows], last_nonzero)].astype(np.float64)
    highest = pattern.col_indices[np.maximum(pattern.row_offsets[rows + 1] - 1, 0)].astype(np.float64)
    span = np.where(filled, highest, -1).max(axis=1) - np.where(filled, lowest, pattern.num_cols).min(axis=1) + 1
    mean, longest = lengths.mean(axis=1), lengths.max(axis=1)
    codes = (
        np.log2(1 + lengths.min(axis=1)) / 4,
        np.log2(1 + mean) / 4,
        np.log2(1 + longest) / 4,
        lengths.std(axis=1) / np.maximum(mean, 1e-9) / 2,
        1 - filled.mean(axis=1),
        np.log2(1 + np.maximum(span, 0)) / 8,
        np.maximum(span, 0) / pattern.num_cols,
        first_rows / pattern.num_rows,
        mean / np.maximum(longest, 1),
    )
    return np.stack(codes, axis=-1).astype(np.float32)


def _nonzero_tokens(pattern: Pattern, generator: np.random.Generator, shown: SingleNonzeros) -> MatrixTokens:
    """Nonzeros sampled evenly over the pattern, in its order, one to a token."""
    count = min(shown.count, pattern.nnz)
    positions = np.zeros(shown.count, np.int64)
    positions[:count] = ((np.arange(count) + generator.random(count)) / count * pattern.nnz).astype(np.int64)
    codes = shown.codes(pattern, nonzeros_at(pattern, np.minimum(positions, pattern.nnz - 1)))
    mask = np.arange(shown.count) < count
    windows = np.zeros((shown.count, WINDOW_WIDTH), np.float32)
    return (codes * mask[:, None])[:, None, :], mask[:, None], windows


__all__ = [
    "PROFILED",
    "SINGLE_NONZEROS",
    "WINDOW_WIDTH",
    "EncoderKind",
    "PromptInputs",
    "code_width",
    "feature_names",
    "header",
    "matrix_inputs",
    "pattern_features",
    "prompt_inputs",
]
