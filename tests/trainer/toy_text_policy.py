"""A language model of 0.2 million parameters that is asked in words and knows a few programs, good and bad.

Its tokenizer has the lines that prompts share as words: a prompt of 13,000 characters is a few hundred tokens.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from services.generator.policy.probe_set import probe_set
from services.trainer.course import toy
from services.trainer.course.lessons import Lesson
from services.trainer.optimizers import Optimizer, Schedule
from services.trainer.policy_model import text_batch
from services.trainer.tokenizer import BOS_ID, EOS_ID, PAD_ID, TokenizerSize, train_tokenizer
from sparsesmith.matrix.pattern import Pattern
from sparsesmith.policy.chat import ChatTokenizer
from sparsesmith.policy.checkpoint import save_language_model, save_tokenizer
from sparsesmith.prompts.dialogue import Line
from sparsesmith.prompts.text import text_prompt
from sparsesmith_proto.kernel import Prompt, Workload

STEPS = 80
MOST_TOKENS = 1024
"""Of a prompt and a program."""


def words_for(pattern: Pattern, workload: Workload, sample_seed: int = 1) -> str:
    return text_prompt(pattern, workload, Prompt(encoder="text", sample_seed=sample_seed, architecture="sm_90"))


def spmv(pattern: Pattern) -> Workload:
    return Workload(pattern=pattern.digest, operation="spmv", element_type="float32")


def known_programs() -> tuple[str, ...]:
    """Three that are right, and two that are not."""
    programs = toy.programs()
    return (*programs[:3], programs[5], programs[7])


def lessons() -> list[Lesson]:
    """Two band matrices."""
    return [lesson for lesson in toy.lessons() if lesson.name.startswith("band")]


def asked_texts() -> list[str]:
    """For the lessons, and for the canary."""
    own = [words_for(lesson.pattern, spmv(lesson.pattern)) for lesson in lessons()]
    return own + [words_for(asked.pattern, asked.workload, asked.sample_seed) for asked in probe_set()]


@cache
def make_tokenizer() -> Tokenizer:
    texts, programs = asked_texts(), known_programs()
    size = TokenizerSize(vocabulary=640, phrases=160, phrase_characters=160)
    tokenizer = train_tokenizer(programs, programs, size)
    lines = Counter(line for text in texts for line in set(text.splitlines()))
    shared = [line for line, count in lines.items() if count > 1 and len(line) > 8]
    tokenizer.add_tokens([AddedToken(line, normalized=False) for line in shared])
    return tokenizer


def make_model(seed: int = 0, steps: int = STEPS) -> Qwen3ForCausalLM:
    """It has learned to write each program for each lesson, as likely as the others; with no steps it is random."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=-(-tokenizer.get_vocab_size() // 64) * 64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=PAD_ID,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
    )
    model = Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]
    texts = [words_for(each.pattern, spmv(each.pattern), seed) for seed in range(steps) for each in lessons()]
    _learn(model, [tokenizer.encode(text).ids for text in texts], tokenizer, steps)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(torch.bfloat16))
    return model


def write_text_policy(folder: Path, seed: int = 0, steps: int = STEPS) -> Path:
    """A Hugging Face folder."""
    save_language_model(make_model(seed, steps), folder)
    save_tokenizer(make_tokenizer().to_str(), folder)
    return folder


def num_prompt_tokens(folder: Path, text: str) -> int:
    return len(ChatTokenizer(folder).token_ids((Line("user", text),)))


def _learn(model: Qwen3ForCausalLM, prompts: Sequence[list[int]], tokenizer: Tokenizer, steps: int) -> None:
    programs = [[*tokenizer.encode(each).ids, EOS_ID] for each in known_programs()]
    optimizer, schedule = Optimizer([model], matrix_rate=1e-2, other_rate=1e-2, decay=0.0), Schedule()
    for step in range(steps):
        text = text_batch([prompts[step % len(prompts)]] * len(programs), programs)
        logits = model(input_ids=text.token_ids_BT[:, :-1], use_cache=False).logits
        words = torch.log_softmax(logits, dim=-1).gather(-1, text.token_ids_BT[:, 1:, None])[..., 0]
        loss = -(words * text.sampled_mask_BT[:, 1:]).sum(dim=1).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step(schedule.factor(step / steps))
