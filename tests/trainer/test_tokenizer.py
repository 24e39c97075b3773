"""The tokenizer: nothing is lost, idioms are short, numbers stand alone."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from services.trainer.tokenizer import (
    BOS,
    EOS,
    PAD,
    SPECIAL_TOKENS,
    TokenizerSize,
    decode_program,
    encode_program,
    load_tokenizer,
    train_tokenizer,
    with_more_phrases,
)
from sparsesmith.policy.checkpoint import save_tokenizer
from tests.trainer.conftest import make_program

SHIPPED = load_tokenizer(Path(__file__).parents[2] / "models" / "sparsesmith-28m" / "tokenizer.json")


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_survives_the_shipped_tokenizer(text: str) -> None:
    assume_no_special = not any(token in text for token in SPECIAL_TOKENS)
    assert not assume_no_special or decode_program(SHIPPED, encode_program(SHIPPED, text)) == text


def test_an_encoded_program_ends_with_eos_and_decoding_stops_there() -> None:
    ids = encode_program(SHIPPED, make_program(8))
    assert ids[-1] == SHIPPED.token_to_id(EOS)
    assert decode_program(SHIPPED, [*ids, *ids]) == make_program(8)


def test_a_number_of_up_to_five_digits_is_one_token_that_it_shares_with_nothing() -> None:
    for number in ("32", "256", "1024"):
        tokens = SHIPPED.encode(f"block={number} + x{number};").tokens
        assert tokens.count(number) == 2


def test_a_csr_program_takes_the_shipped_tokenizer_fewer_than_150_tokens() -> None:
    assert len(encode_program(SHIPPED, make_program(8))) < 150


def test_the_special_tokens_have_the_ids_that_the_model_configuration_states() -> None:
    assert [SHIPPED.token_to_id(token) for token in (PAD, BOS, EOS)] == [0, 1, 2]
    assert SHIPPED.get_vocab_size() == 8320


def test_phrases_never_grow_beyond_their_limit(tokenizer: Tokenizer) -> None:
    programs = [make_program(4)] * 5
    short = train_tokenizer(programs, programs, TokenizerSize(vocabulary=600, phrases=150, phrase_characters=12))
    long = train_tokenizer(programs, programs, TokenizerSize(vocabulary=600, phrases=150, phrase_characters=60))
    assert len(long.encode(programs[0]).ids) < len(short.encode(programs[0]).ids)
    special = set(SPECIAL_TOKENS)
    assert max(len(token) for token in short.get_vocab() if token not in special) <= 32  # words are bounded by 32


def test_more_phrases_go_behind_those_that_are_there_and_leave_other_texts_as_they_were(tokenizer: Tokenizer) -> None:
    program = "  b[(size_t)col * N + column];\n  c[(size_t)row * N + column];\n"
    more = with_more_phrases(tokenizer, [program] * 3, TokenizerSize(phrases=10, phrase_characters=60))
    known = tokenizer.get_vocab()
    assert tokenizer.get_vocab_size() < more.get_vocab_size() <= tokenizer.get_vocab_size() + 10
    assert {token: more.token_to_id(token) for token in known} == known
    assert len(encode_program(more, program)) < len(encode_program(tokenizer, program))
    assert decode_program(more, encode_program(more, program)) == program
    assert encode_program(more, make_program(8)) == encode_program(tokenizer, make_program(8))


def test_hugging_face_loads_the_saved_tokenizer_unchanged(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save_tokenizer(tokenizer.to_str(), tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    program = make_program(16, "double")
    assert loaded(program)["input_ids"] == tokenizer.encode(program).ids
    assert loaded.eos_token_id == tokenizer.token_to_id(EOS)
