"""The matrix encoder and whole prompts as embeddings."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from sparsesmith.matrix.pattern import Pattern, pattern_from_indices
from sparsesmith.policy.embedding import PromptEmbedder, text_token_ids
from sparsesmith.policy.encoder import MatrixEncoder, collate
from sparsesmith.prompts.arrays import EncoderKind, PromptInputs, feature_names, matrix_inputs, pattern_features
from sparsesmith.prompts.header import ARCHITECTURES, FIRST_HEADER_SIZES, header
from sparsesmith_proto.kernel import Parent
from sparsesmith_proto.message import ElementType

HIDDEN = 32
TOKENIZER = Tokenizer.from_file(str(Path(__file__).parents[2] / "models" / "sparsesmith-28m" / "tokenizer.json"))


def make_pattern(seed: int = 0) -> Pattern:
    generator = np.random.default_rng(seed)
    return pattern_from_indices(100, 100, generator.integers(100, size=400), generator.integers(100, size=400))


def make_inputs(kind: EncoderKind = "structural", seed: int = 0, parent: Parent | None = None) -> PromptInputs:
    pattern = make_pattern(seed)
    features = np.zeros(len(feature_names(kind)), np.float32)
    known = pattern_features(pattern, kind)
    features[: known.size] = known
    return matrix_inputs(pattern, kind, seed, header("spmv", "float32", 1, "sm_90"), features, parent)


def make_encoder(kind: EncoderKind = "structural") -> MatrixEncoder:
    torch.manual_seed(0)
    return MatrixEncoder(kind, HIDDEN, embedding_rms=0.05).eval()


@pytest.mark.parametrize(
    ("kind", "tokens"),
    [
        *((kind, 4 + 4 + 64) for kind in ("structural", "profiled", "features", "blind")),
        *((kind, 4 + 128) for kind in ("sinusoidal", "min_max", "raw_indices")),
        ("sinusoidal_1024", 4 + 1024),
    ],
)
def test_soft_tokens_have_the_size_of_word_embeddings(kind: EncoderKind, tokens: int) -> None:
    soft = make_encoder(kind)(collate([make_inputs(kind), make_inputs(kind, seed=1)]))
    assert soft.shape == (2, tokens, HIDDEN)
    assert float(soft.detach().pow(2).mean().sqrt()) == pytest.approx(0.05, rel=0.05)


def test_points_beyond_the_mask_change_nothing() -> None:
    encoder, batch = make_encoder(), collate([make_inputs()])
    batch.mask[:, :, 20:] = False
    before = encoder(batch)
    batch.points[:, :, 20:] = 1e3
    assert torch.equal(encoder(batch), before)


def test_the_order_of_a_windows_points_does_not_matter() -> None:
    encoder, batch = make_encoder(), collate([make_inputs()])
    before = encoder(batch)
    batch.points.copy_(batch.points.flip(2))
    batch.mask.copy_(batch.mask.flip(2))
    assert torch.allclose(encoder(batch), before, atol=1e-6)


def test_a_window_without_nonzeros_gives_finite_tokens_and_gradients() -> None:
    encoder, batch = make_encoder(), collate([make_inputs()])
    batch.mask[:, :5] = False
    encoder(batch).square().sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters() if parameter.grad is not None)
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_different_matrices_give_different_tokens() -> None:
    soft = make_encoder()(collate([make_inputs(seed=0), make_inputs(seed=1)]))
    assert not torch.allclose(soft[0], soft[1], atol=1e-3)


def test_a_prompt_ends_with_bos_and_a_refining_one_shows_the_parent() -> None:
    parent = Parent(program="int a;", report="passed 3 us")
    assert text_token_ids(TOKENIZER, make_inputs()) == [TOKENIZER.token_to_id("<bos>")]
    ids = text_token_ids(TOKENIZER, make_inputs(parent=parent))
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == "<parent>int a;<report>passed 3 us<bos>"


def test_an_embedder_joins_soft_tokens_and_words_for_each_prompt() -> None:
    encoder, table = make_encoder(), torch.randn(8192, HIDDEN)
    prompts = [make_inputs(), make_inputs(seed=1, parent=Parent(program="int a;", report="slow"))]
    plain, refining = PromptEmbedder(encoder, table, TOKENIZER).embed(prompts)
    soft = encoder(collate(prompts))
    assert torch.equal(plain, torch.cat([soft[0], table[[1]]]))
    words = text_token_ids(TOKENIZER, prompts[1])
    assert torch.equal(refining, torch.cat([soft[1], table[words]]))


def test_one_prompt_is_embedded_alike_alone_and_in_company() -> None:
    embedder = PromptEmbedder(make_encoder(), torch.randn(8192, HIDDEN), TOKENIZER)
    alone = embedder.embed([make_inputs()])[0]
    assert torch.allclose(embedder.embed([make_inputs(), make_inputs(seed=3)])[0], alone, atol=1e-6)


def test_weights_from_before_ids_were_reserved_give_the_same_tokens() -> None:
    """The shipped policy's table has 25 rows: each known id must find its row where it stands today."""
    encoder = MatrixEncoder("structural", 32)
    first = torch.randn(sum(FIRST_HEADER_SIZES), 32)
    encoder.load_state_dict(encoder.state_dict() | {"header.weight": first})
    starts = np.cumsum([0, *FIRST_HEADER_SIZES[:-1]])
    for operation, element_type, cols, architecture in (("spmv", "float64", 1, "sm_90"), ("spmm", "float32", 128, "?")):
        ids = header(operation, cast(ElementType, element_type), cols, architecture)
        tokens = encoder.header(torch.from_numpy(ids) + encoder.get_buffer("header_offsets"))
        assert torch.equal(tokens, first[torch.from_numpy(starts + ids)])


def test_ids_that_nobody_had_when_weights_were_trained_have_their_rows() -> None:
    encoder = MatrixEncoder("structural", 32)
    encoder.load_state_dict(encoder.state_dict() | {"header.weight": torch.randn(sum(FIRST_HEADER_SIZES), 32)})
    new = torch.tensor([2, 2, 0, len(ARCHITECTURES)])
    assert encoder.header(new + encoder.get_buffer("header_offsets")).shape == (4, 32)
