"""A model behind an OpenAI-compatible address: `POST BASE/chat/completions`, streamed.

Too many requests (429) and failures of the server (5xx), silence and streams that end early are tried again, after
pauses that double or that the server asks for; whatever comes is bounded in bytes, characters and seconds. The key
goes to this address alone: redirections are not followed, and neither key nor answers are logged.

What it does not protect against: what the address does with what it is sent, which is the whole dialogue
(docs/security.md).
"""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal

import httpx

from services.generator.writing.model import Answer
from services.generator.writing.writer import NoAnswer
from sparsesmith.errors import InvalidOption, Unavailable
from sparsesmith.prompts.dialogue import Dialogue

log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES = 8 * 2**20
"""Of one response, with all that its stream wraps around the text."""
MAX_ANSWER_CHARACTERS = 2**18
MAX_PAUSE_S = 60.0
"""Longer pauses are not made, whoever asks for them."""
MAX_KEY_CHARACTERS = 4096
_TRIED_AGAIN = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_EARLY,
    HTTPStatus.TOO_MANY_REQUESTS,
}
_CLOSED_TO_US = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}


@dataclass(frozen=True)
class EndpointOptions:
    """The fields of `GeneratorSettings` that begin with `endpoint_`."""

    url: str
    """Up to `/v1`."""
    model: str
    key_file: Path | None = None
    timeout_s: float = 180.0
    silence_s: float = 60.0
    retries: int = 3
    first_pause_s: float = 1.0
    max_tokens: int = 8192
    temperature: float | None = None
    at_once: int = 4


class Endpoint:
    """One address. See Model."""

    name: Literal["endpoint"] = "endpoint"

    def __init__(self, options: EndpointOptions) -> None:
        """Raises InvalidOption where the key's file cannot be read or holds no key."""
        self._options = options
        headers = {} if options.key_file is None else {"Authorization": f"Bearer {key_in(options.key_file)}"}
        timeout = httpx.Timeout(options.silence_s, connect=min(10.0, options.silence_s))
        self._client = httpx.AsyncClient(headers=headers, timeout=timeout, follow_redirects=False)
        self.model = options.model
        self.at_once = options.at_once
        self.patience_s = options.timeout_s

    async def answer(self, asked: Dialogue) -> Answer:
        """See Model."""
        try:
            async with asyncio.timeout(self._options.timeout_s):
                return await self._tried_again(asked)
        except TimeoutError as error:
            raise NoAnswer("timeout", f"no answer within {self._options.timeout_s:g} s") from error

    async def close(self) -> None:
        await self._client.aclose()

    async def _tried_again(self, asked: Dialogue) -> Answer:
        """The first answer that comes whole. Raises NoAnswer after the last try."""
        for number in range(self._options.retries + 1):
            try:
                return await self._once(asked)
            except _TryAgain as failure:
                if number == self._options.retries:
                    raise NoAnswer(failure.reason, str(failure)) from failure
                log.info("the endpoint is asked again: %s", failure)
                await asyncio.sleep(self._pause_s(number, failure.wait_s))
        raise AssertionError("the last try returns or raises")

    def _pause_s(self, number: int, asked_s: float | None) -> float:
        doubled: float = self._options.first_pause_s * 2**number * random.uniform(0.75, 1.25)
        return min(MAX_PAUSE_S, max(doubled, asked_s or 0.0))

    async def _once(self, asked: Dialogue) -> Answer:
        """Raises _TryAgain, NoAnswer, Unavailable."""
        url = self._options.url.rstrip("/") + "/chat/completions"
        heard = _Heard()
        try:
            async with self._client.stream("POST", url, json=self._body(asked)) as response:
                await _check(response, self._options)
                if response.headers.get("content-type", "").startswith("application/json"):
                    heard.take_whole(await _whole(response))
                else:
                    async for event in _events(response):
                        if heard.take(event):
                            break
        except httpx.TimeoutException as error:
            raise _TryAgain("silence", f"nothing for {self._options.silence_s:g} s ({type(error).__name__})") from error
        except httpx.RequestError as error:
            raise _TryAgain("cut" if heard.text else "unreachable", f"{type(error).__name__}: {error}") from error
        return heard.answer()

    def _body(self, asked: Dialogue) -> dict[str, Any]:
        options = self._options
        body: dict[str, Any] = {
            "model": options.model,
            "messages": [{"role": line.role, "content": line.text} for line in asked],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if options.max_tokens:
            body["max_tokens"] = options.max_tokens
        if options.temperature is not None:
            body["temperature"] = options.temperature
        return body


class _TryAgain(Exception):
    """What a try came to, that the next one may not."""

    def __init__(self, reason: str, message: str, wait_s: float | None = None) -> None:
        """`wait_s`: as the server asks."""
        super().__init__(message)
        self.reason = reason
        self.wait_s = wait_s


@dataclass
class _Heard:
    """What has come of an answer."""

    parts: list[str] = field(default_factory=list)
    num_characters: int = 0
    has_ended: bool = False
    usage: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def take(self, event: str) -> bool:
        """The data of one event of the stream. True: nothing more is wanted."""
        if event == "[DONE]":
            self.has_ended = True
            return True
        chunk = _object(event)
        _check_error(chunk)
        self._note_usage(chunk)
        choice = _first_choice(chunk)
        self._add(_content(choice.get("delta")))
        self.has_ended = self.has_ended or choice.get("finish_reason") is not None
        return self.num_characters >= MAX_ANSWER_CHARACTERS

    def take_whole(self, text: str) -> None:
        """Of an address that does not stream."""
        body = _object(text)
        _check_error(body)
        self._note_usage(body)
        self._add(_content(_first_choice(body).get("message")))
        self.has_ended = True

    def answer(self) -> Answer:
        """Raises _TryAgain for a stream that ended before the answer did."""
        if not self.has_ended and self.num_characters < MAX_ANSWER_CHARACTERS:
            raise _TryAgain("cut", f"the stream ended after {self.num_characters} characters, before the answer did")
        return Answer(self.text, _count(self.usage, "prompt_tokens"), _count(self.usage, "completion_tokens"))

    def _add(self, text: str) -> None:
        kept = text[: MAX_ANSWER_CHARACTERS - self.num_characters]
        self.parts.append(kept)
        self.num_characters += len(kept)

    def _note_usage(self, chunk: Mapping[str, Any]) -> None:
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            self.usage = usage


def key_in(file: Path) -> str:
    """Raises InvalidOption."""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InvalidOption(
            f"endpoint_key_file: {file} cannot be read: {reason}", field="endpoint_key_file", value=file
        ) from error
    if not key or len(key) > MAX_KEY_CHARACTERS or not key.isprintable() or " " in key or not key.isascii():
        raise InvalidOption(
            f"endpoint_key_file: {file} holds no key", field="endpoint_key_file", value=file, limit="one line"
        )
    return key


async def _check(response: httpx.Response, options: EndpointOptions) -> None:
    """Raises _TryAgain, NoAnswer or Unavailable for a status that is no answer."""
    status = response.status_code
    if status == HTTPStatus.OK:
        return
    if status in _TRIED_AGAIN or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise _TryAgain(f"status {status}", f"the endpoint answered {status}", _wait_s(response))
    if status in _CLOSED_TO_US:
        raise Unavailable(
            f"the endpoint answered {status} for model {options.model}: are address, model and key right?",
            field="refine.writer",
            value="endpoint",
        )
    raise NoAnswer(f"status {status}", f"the endpoint answered {status}")


def _wait_s(response: httpx.Response) -> float | None:
    """Of Retry-After in seconds; None for a date, and where there is none."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() and len(text) < 6 else None


async def _bounded(response: httpx.Response) -> AsyncIterator[bytes]:
    num_bytes = 0
    async for part in response.aiter_bytes():
        num_bytes += len(part)
        if num_bytes > MAX_RESPONSE_BYTES:
            raise NoAnswer("too long", f"more than {MAX_RESPONSE_BYTES} bytes came")
        yield part


async def _whole(response: httpx.Response) -> str:
    return b"".join([part async for part in _bounded(response)]).decode("utf-8", "replace")


async def _events(response: httpx.Response) -> AsyncIterator[str]:
    """The data of each server-sent event; a line a event, as these services write them."""
    waiting = b""
    async for part in _bounded(response):
        *lines, waiting = (waiting + part).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip().decode("utf-8", "replace")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoAnswer("malformed", "what came is no JSON") from error
    if not isinstance(found, dict):
        raise NoAnswer("malformed", "what came is no JSON object")
    return found


def _check_error(chunk: Mapping[str, Any]) -> None:
    """Some services tell of a failure within the stream."""
    if chunk.get("error"):
        raise _TryAgain("error", "the endpoint told of an error in its answer")


def _first_choice(chunk: Mapping[str, Any]) -> Mapping[str, Any]:
    """Empty for a chunk without any, as the one that tells of tokens."""
    choices = chunk.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return first if isinstance(first, dict) else {}


def _content(message: object) -> str:
    content = message.get("content") if isinstance(message, dict) else None
    return content if isinstance(content, str) else ""


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    found = usage.get(name)
    return found if isinstance(found, int) and found >= 0 else None
