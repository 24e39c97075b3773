"""A model behind an address: what it is asked, what is tried again, and what every answer is bounded by."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.generator.writing.endpoint import MAX_ANSWER_CHARACTERS, Endpoint, EndpointOptions
from services.generator.writing.model import Answer
from services.generator.writing.writer import NoAnswer
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.prompts.dialogue import Line
from tests.generator.scripted_endpoint import Body, Reply, Says, Silence, Status, endpoint_that

ASKED = (Line("user", "Write a kernel."), Line("assistant", "//@ task dot"), Line("user", "Faster."))


def make_options(url: str, **changes: Any) -> EndpointOptions:
    usual = {"silence_s": 5.0, "timeout_s": 20.0, "retries": 2, "first_pause_s": 0.01}
    return EndpointOptions(url=url, model="kernel-writer-1", **{**usual, **changes})


def answer_to(options: EndpointOptions) -> Answer:
    async def asked() -> Answer:
        endpoint = Endpoint(options)
        try:
            return await endpoint.answer(ASKED)
        finally:
            await endpoint.close()

    return asyncio.run(asked())


def test_the_whole_dialogue_goes_there_with_the_key_and_the_answer_comes_back_with_its_tokens(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret-1\n")
    with endpoint_that([Says("//@ task dot\n" + "x" * 300)]) as address:
        answer = answer_to(make_options(address.url + "/", key_file=key, max_tokens=500, temperature=0.5))
    assert answer == Answer("//@ task dot\n" + "x" * 300, prompt_tokens=100, completion_tokens=10)
    (asked,) = address.asked
    assert asked["messages"] == [{"role": line.role, "content": line.text} for line in ASKED]
    assert (asked["model"], asked["max_tokens"], asked["temperature"]) == ("kernel-writer-1", 500, 0.5)
    assert address.keys == ["Bearer secret-1"]


def test_an_address_that_asks_for_no_key_and_does_not_stream_is_taken_too() -> None:
    whole = json.dumps({"choices": [{"message": {"content": "a program"}, "finish_reason": "stop"}]})
    with endpoint_that([Body(whole, "application/json")]) as address:
        answer = answer_to(make_options(address.url, max_tokens=0))
    assert answer == Answer("a program")
    assert address.keys == [None]
    assert "max_tokens" not in address.asked[0]


def patience_s(what: str) -> float:
    """Short where silence is the point: a busy machine is silent for a moment, too."""
    return 0.5 if what == "silence" else 5.0


TRIED_AGAIN: dict[str, Sequence[Reply]] = {
    "too many requests": [Status(429), Status(429, {"Retry-After": "0"}), Says("at last")],
    "a server that fails": [Status(503), Says("at last")],
    "a stream that is cut": [Says("half of", ends=False), Says("at last")],
    "an error in the stream": [Body('data: {"error": {"message": "overloaded"}}\n\n'), Says("at last")],
    "silence": [Silence(3.0, "half of"), Says("at last")],
}


@pytest.mark.parametrize("what", TRIED_AGAIN)
def test_what_may_come_right_is_tried_again(what: str) -> None:
    with endpoint_that(TRIED_AGAIN[what]) as address:
        assert answer_to(make_options(address.url, silence_s=patience_s(what))).text == "at last"
    assert len(address.asked) == len(TRIED_AGAIN[what])


GIVEN_UP: dict[str, tuple[Reply, str, int]] = {
    "too many requests": (Status(429), "status 429", 3),
    "a stream that is cut": (Says("half of", ends=False), "cut", 3),
    "silence": (Silence(3.0), "silence", 3),
    "what is no JSON": (Body("data: <html>\n\n"), "malformed", 1),
    "a prompt that it refuses": (Status(400), "status 400", 1),
    "another address": (Status(307, {"Location": "http://127.0.0.1:9/"}), "status 307", 1),
    "a body without end": (Body("data: " + "x" * 9_000_000), "too long", 1),
}


@pytest.mark.parametrize("what", GIVEN_UP)
def test_what_does_not_come_right_is_told_by_its_reason(what: str) -> None:
    reply, reason, num_tries = GIVEN_UP[what]
    with endpoint_that([reply]) as address, pytest.raises(NoAnswer) as told:
        answer_to(make_options(address.url, silence_s=patience_s(what)))
    assert told.value.reason == reason
    assert len(address.asked) == num_tries


def test_an_answer_takes_no_longer_than_it_may_with_all_its_tries() -> None:
    with endpoint_that([Silence(2.0)]) as address, pytest.raises(NoAnswer) as told:
        answer_to(make_options(address.url, timeout_s=0.3))
    assert told.value.reason == "timeout"


def test_a_pause_is_as_long_as_the_address_asks() -> None:
    with (
        endpoint_that([Status(429, {"Retry-After": "30"})]) as address,
        pytest.raises(NoAnswer, match=r"within 0\.5 s"),
    ):
        answer_to(make_options(address.url, timeout_s=0.5))
    assert len(address.asked) == 1


def test_an_endless_answer_is_cut_off() -> None:
    with endpoint_that([Says("y" * (MAX_ANSWER_CHARACTERS + 50_000))]) as address:
        assert len(answer_to(make_options(address.url)).text) == MAX_ANSWER_CHARACTERS


def test_nobody_listens_there() -> None:
    with pytest.raises(NoAnswer) as told:
        answer_to(make_options("http://127.0.0.1:9/v1", retries=0))
    assert told.value.reason == "unreachable"


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_model_or_address_is_not_asked_again(status: int) -> None:
    with endpoint_that([Status(status)]) as address, pytest.raises(Unavailable, match=rf"{status}.*are address, model"):
        answer_to(make_options(address.url))
    assert len(address.asked) == 1


@pytest.mark.parametrize("content", [None, "", "two words", "é"])
def test_a_file_without_a_key_is_refused_by_name(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidOption, match=r"endpoint_key_file: .*key (cannot be read|holds no key)"):
        Endpoint(make_options("http://127.0.0.1:9/v1", key_file=file))
