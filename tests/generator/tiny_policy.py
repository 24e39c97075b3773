"""Tiny random policies in the shipped policy's architecture, for tests with a real engine."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

from sparsesmith.policy.checkpoint import Policy, save_policy, save_tokenizer, write_published_weights
from sparsesmith.policy.description import PolicyDescription
from sparsesmith.policy.encoder import MatrixEncoder
from sparsesmith_proto.policy import PolicyAnnouncement

HIDDEN = 64
VOCABULARY_SIZE = 384
SPECIAL_TOKENS = ["<eos>", "<bos>", "<pad>", "<parent>", "<report>"]
TEXT = """//@ format csr
//@ launch spmv grid=ceil_div(num_rows,8) block=256
extern "C" __global__ void spmv(int num_rows, int num_cols, int nnz, const int* row_offsets, const int* col_indices,
    const float* values, const float* x, float* y) {
    for (int i = threadIdx.x; i < num_rows; i += blockDim.x) y[i] = 0; }
"""


def make_policy(seed: int = 0, version: int = 0) -> Policy:
    """Two layers, hidden 64, weights so large that two seeds give very different distributions."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.15,
        bos_token_id=1,
        eos_token_id=0,
        pad_token_id=2,
    )
    model = Qwen3ForCausalLM(config).eval()  # type: ignore[no-untyped-call]
    with torch.no_grad():  # What is saved in bfloat16 and loaded again is the same policy.
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    encoder = MatrixEncoder("structural", HIDDEN, embedding_rms=0.5).eval()
    return Policy(model, encoder, PolicyDescription(f"tiny-{seed}", "structural", version=version))


def write_policy(folder: Path, policy: Policy) -> Path:
    """A policy folder with a byte-level tokenizer."""
    save_policy(policy, folder)
    save_tokenizer(make_tokenizer().to_str(), folder)
    return folder


def make_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([TEXT], trainer)
    return tokenizer


def publish(folder: Path, policy: Policy) -> PolicyAnnouncement:
    """What the trainer does: the weights in the shared folder, and the words that announce them."""
    version = policy.description.version
    name = f"policy-{version}.safetensors"
    digest = write_published_weights(policy, folder / name)
    created_at = "2026-11-21T00:00:00Z"
    return PolicyAnnouncement(
        version=version, weights=name, sha256=digest, step=version, metrics={"kl": 0.01}, created_at=created_at
    )


@torch.no_grad()
def reference_logprobs(policy: Policy, embeddings: torch.Tensor, token_ids: tuple[int, ...]) -> torch.Tensor:
    """Log-probability of each token by Hugging Face's model after a prompt of embeddings, shape [tokens]."""
    tokens = torch.tensor(token_ids)
    inputs = torch.cat([embeddings, policy.model.get_input_embeddings()(tokens)])[None]
    logits = policy.model(inputs_embeds=inputs).logits[0, len(embeddings) - 1 : -1].float()
    return torch.log_softmax(logits, -1).gather(-1, tokens[:, None])[:, 0]
