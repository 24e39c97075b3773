"""Tokens a program, with numbers in the text and with facts by name, in the shipped tokenizer and in one learned anew.

    python -m benchmarks.learning.tokens --records benchmarks/records/h200.jsonl.xz benchmarks/records/h200-validation.jsonl.xz \
        --patterns PATTERNS.pack --split benchmarks/split.csv [--out-tokenizer FOLDER/tokenizer.json]

The new tokenizer learns from open programs of the train side, families in equal parts; programs are counted on the
validation side. No model knows the new one: it comes into use with weights that were trained with it.
"""

import argparse
import platform
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.origin import ROOT, source_commit, write_result
from services.trainer.offline.data_commands import in_equal_parts
from services.trainer.offline.records import NUM_SMS, Rendering, read_records, unusable
from services.trainer.offline.sides import Patterns, side_of, sides_in
from services.trainer.tokenizer import TokenizerSize, encode_program, load_tokenizer, train_tokenizer

SHIPPED = ROOT / "models" / "sparsesmith-28m" / "tokenizer.json"
OUT = ROOT / "benchmarks" / "results" / "cpu" / "tokens.json"
LEARNED_SIZE = TokenizerSize(phrases=3000, phrase_characters=60)

ByFamily = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Text:
    """A measured program in both forms."""

    family: str
    side: str
    plain: str
    opened: str


def main(arguments: Sequence[str] | None = None) -> None:
    options = _options(arguments)
    texts = read_texts(options.records, options.patterns, options.split)
    learned_from = in_equal_parts(_by_family(each for each in texts if each.side == "train"), options.programs)
    learned = train_tokenizer([], [program for _, program in learned_from], LEARNED_SIZE)
    if options.out_tokenizer is not None:
        options.out_tokenizer.parent.mkdir(parents=True, exist_ok=True)
        learned.save(str(options.out_tokenizer))
    counted = [each for each in texts if each.side == "validation"]
    tokenizers = {"shipped": load_tokenizer(SHIPPED), "learned": learned}
    result = {
        "kind": "tokens",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": f"python -m benchmarks.learning.tokens --records {' '.join(path.name for path in options.records)}",
        "python": platform.python_version(),
        "num_sms": NUM_SMS,
        "learned": {"programs": len(learned_from), "vocabulary": learned.get_vocab_size(), **asdict(LEARNED_SIZE)},
        "families": counts_of_families(counted, tokenizers),
    }
    write_result(options.out, result)


def read_texts(paths: Iterable[Path], patterns: Sequence[Path], split: Path) -> list[Text]:
    """Different programs of today's families on the matrices that are there, each in both forms."""
    records = [record for path in paths for record in read_records(path)]
    found, sides = Patterns(patterns), sides_in(split)
    usable = [record for record in records if record["pattern"] in found and unusable(record) is None]
    rendered = (Rendering("plain")(usable), Rendering("open", found.named)(usable))
    texts = (
        Text(plain["family"], side_of(plain["pattern"], sides), plain["program"], opened["program"])
        for plain, opened in zip(*rendered, strict=True)
    )
    return list(dict.fromkeys(texts))


def counts_of_families(texts: Sequence[Text], tokenizers: Mapping[str, Tokenizer]) -> dict[str, dict[str, object]]:
    """Of each family and of all: programs, and mean tokens for each tokenizer and form."""
    by_family: dict[str, list[Text]] = defaultdict(list)
    for text in texts:
        by_family[text.family].append(text)
    rows: dict[str, dict[str, object]] = {"all": _row(texts, tokenizers)} if texts else {}
    return rows | {family: _row(of_family, tokenizers) for family, of_family in sorted(by_family.items())}


def _row(texts: Sequence[Text], tokenizers: Mapping[str, Tokenizer]) -> dict[str, object]:
    forms = {"plain": {each.plain for each in texts}, "open": {each.opened for each in texts}}
    means = {
        f"{name}_{form}": round(sum(len(encode_program(tokenizer, text)) for text in given) / len(given), 1)
        for name, tokenizer in tokenizers.items()
        for form, given in forms.items()
    }
    return {"programs": len(forms["plain"]), "different_open": len(forms["open"]), **means}


def _by_family(texts: Iterable[Text]) -> ByFamily:
    programs: dict[str, dict[str, None]] = defaultdict(dict)
    for text in texts:
        programs[text.family].setdefault(text.opened)
    return {family: list(of_family) for family, of_family in programs.items()}


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, nargs="+", required=True)
    parser.add_argument(
        "--patterns", type=Path, nargs="+", required=True, help=".packs, or folders of SciPy .npz files"
    )
    parser.add_argument("--split", type=Path, default=ROOT / "benchmarks" / "split.csv")
    parser.add_argument("--programs", type=int, default=4000, help="that the new tokenizer learns from")
    parser.add_argument("--out-tokenizer", type=Path, help="where the new tokenizer goes")
    parser.add_argument("--out", type=Path, default=OUT)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
