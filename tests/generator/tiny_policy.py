"""Tiny random policies in the shipped policy's architecture, for tests with a real engine."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

HIDDEN = 64
END = "<|end|>"

TEXT = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
    const float* values, const float* x, float* y) { for (int i = threadIdx.x; i < num_rows; i += blockDim.x) y[i] = 0; }
"""


def make_language_model(seed: int = 0, vocabulary_size: int = 384) -> Qwen3ForCausalLM:
    """Two layers, hidden 64, random weights large enough that two seeds give very different distributions."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=vocabulary_size,
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.15,
        bos_token_id=None,
        eos_token_id=0,
        dtype="float32",
    )
    return Qwen3ForCausalLM(config).eval()


def make_tokenizer(vocabulary_size: int = 384) -> PreTrainedTokenizerFast:
    """Byte-level BPE with the end token as id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size, special_tokens=[END], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


def write_language_model(folder: Path, seed: int = 0) -> Path:
    """A Hugging Face folder: config, weights, tokenizer."""
    make_language_model(seed).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    return folder
