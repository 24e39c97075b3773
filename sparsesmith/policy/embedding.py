"""Whole prompts as embeddings: soft tokens of the matrix, then the program to refine, then `<bos>`.

    [header][features][matrix] [<parent> program] [<report> words] <bos>

What follows `<bos>` is the program that the policy writes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from sparsesmith.policy.description import ENCODER_FILE, ENCODER_PREFIX, load_description
from sparsesmith.policy.encoder import MatrixEncoder, collate
from sparsesmith.prompts.arrays import EncoderKind, PromptInputs

EMBEDDING_NAME = "model.embed_tokens.weight"
MAX_PARENT_TOKENS = 1024
MAX_REPORT_TOKENS = 128


def text_token_ids(tokenizer: Tokenizer, prompt: PromptInputs) -> list[int]:
    """Ids of the prompt's part after the soft tokens: the parent and its report where there is one, then `<bos>`."""
    parent = prompt.parent
    ids = [] if parent is None else refinement_token_ids(tokenizer, parent.program, parent.report)
    return [*ids, token_id(tokenizer, "<bos>")]


def refinement_token_ids(tokenizer: Tokenizer, program: str, report: str) -> list[int]:
    """`<parent>` program `<report>` words, each cut to its limit."""
    program_ids = tokenizer.encode(program, add_special_tokens=False).ids[:MAX_PARENT_TOKENS]
    report_ids = tokenizer.encode(report, add_special_tokens=False).ids[:MAX_REPORT_TOKENS]
    return [token_id(tokenizer, "<parent>"), *program_ids, token_id(tokenizer, "<report>"), *report_ids]


class PromptEmbedder(nn.Module):
    """Encoder and embedding table together: what the generator needs to turn a prompt into vectors."""

    def __init__(self, encoder: MatrixEncoder, embedding: Tensor, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("embedding", embedding)
        self._tokenizer = tokenizer

    @torch.no_grad()
    def embed(self, prompts: Sequence[PromptInputs], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        """Embeddings of each prompt, shape [num_prompt_tokens, hidden], on the CPU."""
        table: Tensor = self.get_buffer("embedding")
        soft = self.encoder(collate(prompts).to(table.device)) if prompts else ()
        texts = [table[torch.tensor(text_token_ids(self._tokenizer, prompt))] for prompt in prompts]
        return [torch.cat([tokens, text]).to("cpu", dtype) for tokens, text in zip(soft, texts, strict=True)]

    def num_tokens(self, program: str) -> int:
        """Of a program, in the policy's words."""
        return len(self._tokenizer.encode(program, add_special_tokens=False).ids)

    def with_weights(self, published: Path) -> "PromptEmbedder":
        """A second embedder with the encoder and embeddings of a published file; this one is left as it is."""
        return PromptEmbedder.from_tensors(self.encoder.kind, _tensors(published), self._tokenizer)

    @staticmethod
    def from_tensors(kind: EncoderKind, tensors: Mapping[str, Tensor], tokenizer: Tokenizer) -> "PromptEmbedder":
        """From a published file's tensors: the embedding table and the encoder's weights under `encoder.`."""
        table = tensors[EMBEDDING_NAME].float()
        encoder = MatrixEncoder(kind, table.shape[1])
        encoder.load_state_dict(
            {
                name.removeprefix(ENCODER_PREFIX): value
                for name, value in tensors.items()
                if name.startswith(ENCODER_PREFIX)
            }
        )
        return PromptEmbedder(encoder.float().eval(), table, tokenizer)


def load_embedder(folder: Path) -> PromptEmbedder:
    """The embedder of a policy folder. Loads no layer of the language model."""
    tensors: dict[str, Tensor] = {}
    for shard in sorted(folder.glob("model*.safetensors")):
        tensors |= _tensors(shard)
    tensors |= {
        ENCODER_PREFIX + name: value for name, value in _tensors(folder / ENCODER_FILE, everything=True).items()
    }
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return PromptEmbedder.from_tensors(load_description(folder).encoder, tensors, tokenizer)


def _tensors(path: Path, everything: bool = False) -> dict[str, Tensor]:
    """Of a file, the embedding table and what begins with `encoder.`; or everything."""
    with safe_open(path, framework="pt") as file:
        names = [name for name in file.keys() if everything or name == EMBEDDING_NAME or _is_encoders(name)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}


def _is_encoders(name: str) -> bool:
    return name.startswith(ENCODER_PREFIX)


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Raises ValueError for a token that it has not."""
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no {token}")
    return found
