"""Finding places in code by its tokens: `int row = (blockIdx.x * BLOCK + threadIdx.x) / LANES;` names two of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sparsesmith.program.restrictions.tokens import Token, closing, tokenize

_OPENING = ("(", "[", "{")


@dataclass(frozen=True)
class Found:
    """Where a phrase stands; places count tokens."""

    first: int
    past: int
    places: Mapping[str, Token]
    """What stands where the phrase has a name in capitals."""

    def number(self, name: str) -> int | None:
        """The whole number in a place; None: something else stands there."""
        text = self.places[name].text
        return int(text) if text.isascii() and text.isdigit() else None


class Phrase:
    """Tokens in a row. A name in capitals, of two letters or more, stands for any one name or number, the same
    wherever it comes again."""

    def __init__(self, text: str) -> None:
        self._tokens = tokenize(text).code

    def find(self, code: Sequence[Token], first: int = 0, past: int | None = None) -> Iterator[Found]:
        """Every place from `first` on that ends before `past`."""
        last = (len(code) if past is None else past) - len(self._tokens)
        for index in range(first, last + 1):
            if (places := self._match(code, index)) is not None:
                yield Found(index, index + len(self._tokens), places)

    def _match(self, code: Sequence[Token], first: int) -> dict[str, Token] | None:
        places: dict[str, Token] = {}
        for offset, wanted in enumerate(self._tokens):
            token = code[first + offset]
            if _is_place(wanted):
                if token.kind not in ("name", "number") or places.setdefault(wanted.text, token).text != token.text:
                    return None
            elif token.text != wanted.text:
                return None
        return places


def _is_place(token: Token) -> bool:
    return token.kind == "name" and len(token.text) > 1 and token.text.isupper() and token.text.isalpha()


def statements(code: Sequence[Token], first: int, past: int) -> list[tuple[int, int]]:
    """The statements of a block, each from its first token to past its last."""
    found = []
    while first < past:
        end = _past_statement(code, first, past)
        found.append((first, end))
        first = end
    return found


def _past_statement(code: Sequence[Token], first: int, past: int) -> int:
    match code[first].text:
        case "{":
            return closing(code, first) + 1
        case "if":
            end = _past_statement(code, closing(code, first + 1) + 1, past)
            return _past_statement(code, end + 1, past) if end < past and code[end].text == "else" else end
        case "for" | "while" | "switch":
            return _past_statement(code, closing(code, first + 1) + 1, past)
        case "do":
            return _past_semicolon(code, _past_statement(code, first + 1, past), past)
        case _:
            return _past_semicolon(code, first, past)


def _past_semicolon(code: Sequence[Token], place: int, past: int) -> int:
    while place < past and code[place].text != ";":
        place = (closing(code, place) if code[place].text in _OPENING else place) + 1
    return min(place + 1, past)
