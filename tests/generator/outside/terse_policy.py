"""A kind of policy of another package, in one file: asked in one line, through its model's chat template."""

from collections.abc import Mapping
from pathlib import Path

from services.generator.policy.engine import EnginePrompt
from services.generator.policy.text_policy import TextPrompts
from sparsesmith.matrix.pattern import Pattern
from sparsesmith_proto.kernel import Prompt, Workload


class TersePolicy:
    """See services.generator.policy.kind.PolicyKind."""

    weights_beside: Mapping[str, str] = {}

    def fits(self, folder: Path) -> bool:
        return (folder / "tokenizer_config.json").is_file()

    def name_of(self, folder: Path) -> str:
        return f"terse {folder.name}"

    def prompt_writer(self, folder: Path) -> "TersePrompts":
        return TersePrompts(folder)


class TersePrompts(TextPrompts):
    encoder = "terse"

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        return self.written(f"{workload.operation} {pattern.num_rows} {pattern.num_cols} {pattern.nnz}")


class Unfinished:
    """Lacks a writer."""

    weights_beside: Mapping[str, str] = {}

    def fits(self, folder: Path) -> bool:
        return True

    def name_of(self, folder: Path) -> str:
        return "unfinished"


TERSE, UNFINISHED = TersePolicy(), Unfinished()
