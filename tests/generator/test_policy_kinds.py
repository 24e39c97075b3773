"""Kinds of policy by name: ours, and one that another package brings in a file of its own."""

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from services.generator.policy.engine import TokenPrompt
from services.generator.policy.folder import PolicyFolder
from services.generator.policy.kinds import kind_of
from services.generator.policy.matrix_policy import MatrixPolicy
from services.generator.policy.text_policy import TextPolicy, TextPrompts
from services.generator.settings import GeneratorSettings
from sparsesmith.errors import InvalidOption
from sparsesmith.policy.description import DESCRIPTION_FILE, ENCODER_FILE
from sparsesmith.prompts.dialogue import Line
from tests.generator.orders import make_prompt, make_task
from tests.generator.tiny_policy import make_policy, write_policy

OUTSIDE = Path(__file__).with_name("outside")
TEMPLATE = (
    "{% for message in messages %}<bos>{{ message.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}"
)


@pytest.fixture
def package_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package is installed, as a folder on Python's path."""
    monkeypatch.syspath_prepend(OUTSIDE)


def write_chat_model(folder: Path) -> Path:
    """A tiny random model of Hugging Face with a chat template, and nothing of ours."""
    write_policy(folder, make_policy())
    (folder / DESCRIPTION_FILE).unlink()
    (folder / ENCODER_FILE).unlink()
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": TEMPLATE}))
    return folder


def test_the_kind_that_fits_a_folder_is_chosen_and_may_be_named(tmp_path: Path) -> None:
    folder = write_policy(tmp_path, make_policy())
    assert isinstance(kind_of(folder), MatrixPolicy)
    assert isinstance(kind_of(folder, "text"), TextPolicy)
    (folder / ENCODER_FILE).unlink()
    assert isinstance(kind_of(folder), TextPolicy)
    with pytest.raises(InvalidOption, match="holds no policy of kind matrix"):
        kind_of(folder, "matrix")


def test_a_language_model_of_ours_that_is_asked_in_text_has_no_encoder_to_publish(tmp_path: Path) -> None:
    folder = write_policy(tmp_path, make_policy())
    assert any(name.startswith("encoder.") for name in PolicyFolder(folder).shapes)
    assert not any(name.startswith("encoder.") for name in PolicyFolder(folder, "text").shapes)


def test_a_dialogue_goes_through_the_chat_template_line_by_line(tmp_path: Path) -> None:
    folder = write_chat_model(tmp_path)
    prompts, tokenizer = TextPrompts(folder), AutoTokenizer.from_pretrained(folder)
    asked = (Line("user", "Write."), Line("assistant", "y = 0;"), Line("user", "Faster."))
    expected = tokenizer("<bos>Write.<bos>y = 0;<bos>Faster.>", add_special_tokens=False)["input_ids"]
    assert prompts.chat(asked) == TokenPrompt(tuple(expected))


def test_an_unknown_kind_is_refused_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"policy_kind 'image' is unknown \(known: auto, matrix, text\)"):
        kind_of(tmp_path, "image")


@pytest.mark.usefixtures("package_from_outside")
def test_a_kind_from_outside_that_lacks_a_part_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="policy kind unfinished: prompt_writer is missing"):
        kind_of(tmp_path, "unfinished")


@pytest.mark.usefixtures("package_from_outside")
def test_a_kind_from_outside_is_chosen_by_its_name_and_asks_through_the_chat_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARSESMITH_GENERATOR_POLICY_KIND", "terse")
    folder = PolicyFolder(write_chat_model(tmp_path / "model"), GeneratorSettings().policy_kind)
    writer, task = folder.prompt_writer(), make_task()
    written = writer.write(task.problem.pattern, task.order.workload, make_prompt(encoder=writer.encoder))
    assert isinstance(written, TokenPrompt)
    prompt = str(AutoTokenizer.from_pretrained(folder.path).decode(list(written.token_ids)))
    assert (folder.name, writer.encoder) == ("terse model", "terse")
    assert prompt.startswith("<bos>spmv 40 30 ") and prompt.endswith(">")
