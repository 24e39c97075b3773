"""A published adapter: a folder as peft writes it, which vLLM and others read, with the name of its base.

adapter_config.json         rank, scale, which weights are adapted
adapter_model.safetensors   two factors a weight; in its metadata `base` (`base_identity`)

Its digest is over both files.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from sparsesmith_proto.message import Digest

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
ADAPTER_FILES = (CONFIG_FILE, WEIGHTS_FILE)
PREFIX = "base_model.model."
"""Of the names of its tensors, before the model's own."""
BASE = "base"
MOST_RANK = 512


def base_identity(folder: Path) -> Digest:
    """SHA-256 over a language model's weights, configuration and tokenizer: an adapter fits no other."""
    beside = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    return files_digest([*folder.resolve().glob("model*.safetensors"), *(folder / name for name in beside)])


def adapter_digest(folder: Path) -> Digest:
    """Of an adapter's folder. Raises OSError where a file is not there."""
    for name in ADAPTER_FILES:
        (folder / name).stat()
    return files_digest(folder / name for name in ADAPTER_FILES)


def files_digest(paths: Iterable[Path]) -> Digest:
    """SHA-256 over names and contents, of those that are there, in the order of their paths."""
    sha = hashlib.sha256()
    for path in sorted(path for path in paths if path.is_file()):
        with path.open("rb") as file:
            sha.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return sha.hexdigest()
