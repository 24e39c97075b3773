"""Any other language model of Hugging Face: asked in words, through its chat template where it has one."""

from collections.abc import Callable, Mapping
from pathlib import Path

from services.generator.policy.engine import EnginePrompt, TokenPrompt
from sparsesmith.elements import ALL_TYPES
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.chat import ChatTokenizer
from sparsesmith.prompts.dialogue import Dialogue, Line
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload
from sparsesmith_proto.message import EncoderName, PolicyVersion


class TextPolicy:
    """A language model alone; see PolicyKind."""

    weights_beside: Mapping[str, str] = {}
    takes_adapters = True

    def fits(self, folder: Path) -> bool:
        return True

    def name_of(self, folder: Path) -> str:
        return folder.resolve().name

    def prompt_writer(self, folder: Path) -> "TextPrompts":
        return TextPrompts(folder)


class TextPrompts:
    """Prompts as token ids of a text; see PromptWriter."""

    encoder: EncoderName = "text"
    element_types = ALL_TYPES
    operations: tuple[str, ...] | None = None

    def __init__(self, folder: Path) -> None:
        self._tokenizer = ChatTokenizer(folder)

    def write(self, pattern: Pattern, workload: Workload, prompt: Prompt) -> EnginePrompt:
        return self.written(text_prompt(pattern, workload, prompt))

    def written(self, text: str) -> TokenPrompt:
        """What a user says, as the model's tokens."""
        return self.chat((Line("user", text),))

    def chat(self, asked: Dialogue) -> TokenPrompt:
        """A dialogue as the model's tokens; where the model has no chat template, its texts one after the other."""
        return TokenPrompt(self._tokenizer.token_ids(asked))

    def prepared(self, weights: Path, version: PolicyVersion) -> Callable[[], None]:
        return self.use_shipped

    def use_shipped(self) -> None:
        """There is no encoder to change."""
