"""The offline stages from a shell: `python -m services.trainer.offline STAGE`, of corpus, programs, tokenizer,
examples, teach, pack, pretrain, retokenize, sft, average, nats, value, evaluate, and `policy` for all from corpus to
evaluate.

Each stage reads files and writes files, so that the stage that needs a GPU can run on another machine with nothing but
torch, transformers and the packed tokens.
"""

import argparse
import csv
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from services.trainer.offline.averaging import add_average
from services.trainer.offline.critic_commands import add_critic
from services.trainer.offline.data_commands import add_examples, add_programs
from services.trainer.offline.options import add_fields, fields_from
from services.trainer.offline.recipe import add_policy
from services.trainer.offline.retokenizing import add_retokenize
from services.trainer.offline.supervised_commands import add_evaluate, add_nats, add_sft
from services.trainer.offline.teaching import add_teach
from services.trainer.offline.text_files import open_text
from services.trainer.offline.value_commands import add_value
from services.trainer.tokenizer import TokenizerSize, load_tokenizer, train_tokenizer, with_more_phrases

DEVICE_CODE_SHARE = 0.6
"""Of the characters that the tokenizer learns from, those from files with kernels."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Parses, runs one stage, prints its report as JSON."""
    json.dump(run_stage(arguments), sys.stdout, indent=1)
    print()
    return 0


def run_stage(arguments: Sequence[str] | None) -> dict[str, object]:
    """One stage's report."""
    parser = argparse.ArgumentParser(prog="python -m services.trainer.offline", description=__doc__)
    stages = parser.add_subparsers(dest="stage", required=True)
    add_programs(stages.add_parser("programs", help="records -> JSON lines with a `program` field"))
    _add_corpus(stages.add_parser("corpus", help="folders or packed sources -> train.jsonl.xz, held_out.jsonl.xz"))
    _add_tokenizer(stages.add_parser("tokenizer", help="corpus and programs -> tokenizer.json"))
    _add_pack(stages.add_parser("pack", help="corpus -> token files for pretraining"))
    _add_pretrain(stages.add_parser("pretrain", help="token files -> a language model"))
    add_examples(stages.add_parser("examples", help="records -> programs to write, to improve, to repair"))
    add_teach(stages.add_parser("teach", help="matrices -> others like them, with what a cost model expects of them"))
    add_retokenize(stages.add_parser("retokenize", help="a policy and another tokenizer -> a policy that learns on"))
    add_sft(stages.add_parser("sft", help="examples and a language model -> a policy"))
    add_average(stages.add_parser("average", help="a policy that learned on and the one before -> one in between"))
    add_nats(stages.add_parser("nats", help="a policy's loss on examples, in nats a program by part"))
    add_value(stages.add_parser("value", help="examples -> a value model: chance to pass, time"))
    add_critic(stages.add_parser("critic", help="examples and a policy -> its critic: what a program will take"))
    add_evaluate(stages.add_parser("evaluate", help="samples of a policy, judged by measured programs"))
    add_policy(stages.add_parser("policy", help="all of these in order, going on where they were stopped"))
    options = parser.parse_args(arguments)
    report: dict[str, object] = options.run(options)
    return report


def _add_corpus(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", type=Path, help="folders of source, or .jsonl[.xz] files")
    parser.add_argument("--licences", type=Path, help="CSV with columns source, licence")
    parser.add_argument("--allow", nargs="*", help="licences to keep; default: all")
    parser.add_argument("--host-code", action="store_true", help="keep files without device code too")
    parser.add_argument("--held-out-share", type=float, default=0.02)
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.set_defaults(run=_run_corpus)


def _run_corpus(options: argparse.Namespace) -> dict[str, object]:
    from services.trainer.offline.corpus import CorpusFilter, build_corpus, read_folder, read_jsonl, write_jsonl

    licences: dict[str, str] = {}
    if options.licences:
        with options.licences.open(encoding="utf-8", newline="") as rows:
            licences = {row["source"]: row["licence"] for row in csv.DictReader(rows)}
    files = (
        file
        for path in options.inputs
        for file in (
            read_folder(path, path.name, licences.get(path.name, "unknown"))
            if path.is_dir()
            else read_jsonl(path, licences)
        )
    )
    allowed = frozenset(options.allow) if options.allow else None
    rules = CorpusFilter(device_code_only=not options.host_code, allowed_licences=allowed)
    corpus = build_corpus(files, rules, held_out_share=options.held_out_share)
    options.out.mkdir(parents=True, exist_ok=True)
    write_jsonl(options.out / "train.jsonl.xz", corpus.train)
    write_jsonl(options.out / "held_out.jsonl.xz", corpus.held_out)
    return {
        "train_files": len(corpus.train),
        "train_characters": sum(len(file.text) for file in corpus.train),
        "held_out_files": len(corpus.held_out),
        "held_out_characters": sum(len(file.text) for file in corpus.held_out),
        "left_out": dict(corpus.left_out),
    }


def _add_tokenizer(parser: argparse.ArgumentParser) -> None:
    words = parser.add_mutually_exclusive_group(required=True)
    words.add_argument("--corpus", type=Path, help="folder that the corpus stage wrote, to learn words of")
    words.add_argument("--onto", type=Path, metavar="TOKENIZER", help="tokenizer.json that only more phrases go onto")
    parser.add_argument("--programs", type=Path, required=True, help="JSON lines with a `program` field")
    parser.add_argument("--vocabulary", type=int, default=TokenizerSize.vocabulary)
    parser.add_argument("--phrases", type=int, default=TokenizerSize.phrases)
    parser.add_argument("--phrase-characters", type=int, default=TokenizerSize.phrase_characters)
    parser.add_argument("--sample-characters", type=int, default=40_000_000)
    parser.add_argument("--out", type=Path, required=True, help="tokenizer.json")
    parser.set_defaults(run=_run_tokenizer)


def _run_tokenizer(options: argparse.Namespace) -> dict[str, object]:
    programs = list(read_programs(options.programs))
    size = TokenizerSize(options.vocabulary, options.phrases, options.phrase_characters)
    if options.onto is not None:
        tokenizer = with_more_phrases(load_tokenizer(options.onto), programs, size)
    else:
        texts = _tokenizer_sample(list(_corpus_texts(options.corpus / "train.jsonl.xz")), options.sample_characters)
        tokenizer = train_tokenizer(texts, programs, size)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.out))
    lengths = sorted(len(encoding.ids) for encoding in tokenizer.encode_batch(programs))
    return {
        "vocabulary": tokenizer.get_vocab_size(),
        "program_tokens": {"median": lengths[len(lengths) // 2], "longest": lengths[-1]},
    }


def _tokenizer_sample(texts: list[str], characters: int) -> list[str]:
    """Files in random order until the budget is spent, kernels preferred."""
    random.Random(0).shuffle(texts)
    kernels = [text for text in texts if "__global__" in text or "threadIdx" in text]
    return [
        *_up_to(kernels, int(characters * DEVICE_CODE_SHARE)),
        *_up_to(texts, int(characters * (1 - DEVICE_CODE_SHARE))),
    ]


def _up_to(texts: Sequence[str], characters: int) -> Iterator[str]:
    for text in texts:
        if characters <= 0:
            return
        characters -= len(text)
        yield text


def _add_pack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--programs", type=Path, help="JSON lines with a `program` field, mixed into the training text")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder")
    parser.set_defaults(run=_run_pack)


def _run_pack(options: argparse.Namespace) -> dict[str, object]:
    from services.trainer.offline.pretraining import pack, save_tokens

    tokenizer = load_tokenizer(options.tokenizer)
    train = [*_corpus_texts(options.corpus / "train.jsonl.xz")]
    if options.programs:
        train += read_programs(options.programs)
    random.Random(0).shuffle(train)
    held_out = list(_corpus_texts(options.corpus / "held_out.jsonl.xz"))
    train_tokens, held_out_tokens = pack(tokenizer, train), pack(tokenizer, held_out)
    options.out.mkdir(parents=True, exist_ok=True)
    save_tokens(options.out / "train.bin.xz", train_tokens)
    save_tokens(options.out / "held_out.bin.xz", held_out_tokens)
    facts = {
        "vocabulary": tokenizer.get_vocab_size(),
        "train_tokens": len(train_tokens),
        "held_out_tokens": len(held_out_tokens),
        "held_out_bytes": sum(len(text.encode()) for text in held_out),
        "train_file_bytes": (options.out / "train.bin.xz").stat().st_size,
    }
    (options.out / "tokens.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return facts


def _add_pretrain(parser: argparse.ArgumentParser) -> None:
    from services.trainer.offline.pretraining import PretrainingSettings
    from services.trainer.policy_model import PolicySize

    parser.add_argument("--tokens", type=Path, required=True, help="folder that the pack stage wrote")
    parser.add_argument("--save", type=Path, help="the run's state: with it, a run that was killed goes on")
    parser.add_argument("--save-every-s", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True, help="folder for config.json and model-*.safetensors")
    add_fields(parser, PolicySize())
    add_fields(parser, PretrainingSettings())
    parser.set_defaults(run=_run_pretrain)


def _run_pretrain(options: argparse.Namespace) -> dict[str, object]:
    from services.trainer.offline.pretraining import PretrainingSettings, load_tokens, pretrain
    from services.trainer.offline.saved_run import SavedRun
    from services.trainer.policy_model import PolicySize, new_language_model, num_parameters
    from sparsesmith.policy.checkpoint import save_language_model

    facts = json.loads((options.tokens / "tokens.json").read_text(encoding="utf-8"))
    settings = fields_from(PretrainingSettings, options)
    model = new_language_model(fields_from(PolicySize, options), facts["vocabulary"], settings.seed)
    print(f"{num_parameters(model)} parameters", file=sys.stderr)
    identity = {**asdict(settings), **asdict(fields_from(PolicySize, options)), **facts}
    saved = SavedRun(options.save, identity, options.save_every_s)
    report = pretrain(
        model,
        load_tokens(options.tokens / "train.bin.xz"),
        load_tokens(options.tokens / "held_out.bin.xz"),
        facts["held_out_bytes"],
        settings,
        log=lambda line: print(line, file=sys.stderr, flush=True),
        saved=saved,
    )
    save_language_model(model, options.out)
    saved.end()
    summary = {"parameters": num_parameters(model), "settings": asdict(settings), **asdict(report)}
    (options.out / "pretraining.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return summary


def read_programs(path: Path) -> Iterator[str]:
    """The `program` of each JSON line."""
    with open_text(path, "r") as lines:
        for line in lines:
            yield json.loads(line)["program"]


def _corpus_texts(path: Path) -> Iterator[str]:
    from services.trainer.offline.corpus import read_jsonl

    return (file.text for file in read_jsonl(path))


if __name__ == "__main__":
    sys.exit(main())
