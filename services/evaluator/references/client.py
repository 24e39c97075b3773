"""Asks references: the end that a device's process, or an import, has of `forks`."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from services.evaluator.references.forks import READY
from services.evaluator.references.wire import receive, send
from sparsesmith.elements import dtype_of
from sparsesmith.errors import InvalidInput, InvalidOption, Unavailable
from sparsesmith.operations.imported.card import Card, DrawKind, ImportedOperand
from sparsesmith.operations.imported.folder import REFERENCE
from sparsesmith.operations.imported.references import Answer, Arrays, Result
from sparsesmith.operations.operand import Sizes

START_LIMIT_S = 120.0
"""Importing torch on a busy machine."""
LARGEST_INDEX = 2**31
_KEPT_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "TMPDIR")


@dataclass(frozen=True)
class ReferenceLimits:
    """Of the process that runs one."""

    seconds: float = 60.0
    """Longest answer to one question."""
    memory_bytes: int = 8 << 30
    """Address space; torch takes about two GiB of it."""
    takes_posted: bool = False
    """Tasks that came over HTTP."""
    is_confined: bool = True


class ReferenceProcess:
    """Implements the References protocol; used as a context manager. Started before its owner is confined."""

    def __init__(self, limits: ReferenceLimits) -> None:
        self._limits = limits
        ours, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)  # noqa: PTH100
        environment |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        words = [str(theirs.fileno()), str(limits.memory_bytes), str(limits.seconds), str(limits.is_confined)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "services.evaluator.references.forks", *words],
            pass_fds=(theirs.fileno(),),
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        theirs.close()
        self._connection = Connection(ours.detach())
        self._is_ready = False
        self._lock = Lock()
        """Held from a question to its answer: draws of a batch ask from several threads."""

    def __enter__(self) -> "ReferenceProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def describe(self, source: Mapping[str, Any], sizes: Sizes) -> dict[str, Any]:
        """Inputs, outputs and operations of one that is being imported."""
        reply, _ = self._asked({"source": source, "sizes": dict(sizes), "question": "describe"}, {}, "the reference")
        return reply

    def draw(self, folder: Path, card: Card, kind: DrawKind, sizes: Sizes, seed: int) -> Arrays:
        """See References.draw."""
        question = {"question": "draw", "kind": kind, "seed": seed, **self._about(folder, card, sizes)}
        _, arrays = self._asked(question, {}, f"task {card.name}")
        inputs = _inputs_of(card)
        _check_number(card, len(arrays), len(inputs), "inputs")
        return {
            each.name: _in_type(_shaped(arrays[str(place)], each, card, sizes), each, card)
            for place, each in enumerate(inputs)
        }

    def answer(self, folder: Path, card: Card, sizes: Sizes, inputs: Arrays) -> Answer:
        """See References.answer."""
        reply, arrays = self._asked_of("answer", folder, card, sizes, inputs)
        results = _outputs_of(card)
        _check_number(card, len(reply["types"]), len(results), "outputs")
        return Answer(
            {
                each.name: self._result(card, each, place, reply["types"][place], arrays, sizes)
                for place, each in enumerate(results)
            },
            int(reply["num_terms"]),
        )

    def otherwise(self, folder: Path, card: Card, sizes: Sizes, inputs: Arrays) -> Arrays:
        """Results in the task's own type, found by others of torch's routines than `answer` takes."""
        _, arrays = self._asked_of("otherwise", folder, card, sizes, inputs)
        return {
            each.name: _shaped(arrays[str(place)], each, card, sizes) for place, each in enumerate(_outputs_of(card))
        }

    def _asked_of(
        self, question: str, folder: Path, card: Card, sizes: Sizes, inputs: Arrays
    ) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        operands = _inputs_of(card)
        types = [each.given for each in operands]
        given = {str(place): _sendable(inputs[each.name], each) for place, each in enumerate(operands)}
        asked = {"question": question, "types": types, **self._about(folder, card, sizes)}
        return self._asked(asked, given, f"task {card.name}")

    def _result(
        self,
        card: Card,
        operand: ImportedOperand,
        place: int,
        type_: str,
        arrays: Mapping[str, npt.NDArray[Any]],
        sizes: Sizes,
    ) -> Result:
        if type_ != operand.given:
            raise _wrong(card, f"returns {operand.name} as {type_}, needed: {operand.given}")
        wide, own = (_shaped(arrays[f"{kind} {place}"], operand, card, sizes) for kind in ("wide", "own"))
        return Result(wide, own)

    def _about(self, folder: Path, card: Card, sizes: Sizes) -> dict[str, Any]:
        if card.posted and not self._limits.takes_posted:
            raise InvalidOption(
                f"task {card.name} came over HTTP, and this evaluator runs no such references "
                "(SPARSESMITH_EVALUATOR_POSTED_TASKS)",
                field="task",
                value=card.name,
            )
        text = (folder / REFERENCE).read_text(encoding="utf-8")
        return {"source": source_of(card, text), "sizes": {**card.fixed, **sizes}}

    def _asked(
        self, question: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], what: str
    ) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        try:
            with self._lock:
                self._wait_until_ready()
                send(self._connection, question, arrays)
                reply, results = receive(self._connection)
        except (EOFError, OSError) as error:
            raise Unavailable("the process that runs references has ended") from error
        if "error" in reply:
            reason = f"{what}: {reply['field']}: {reply['error']}"
            raise InvalidInput(reason, field=str(reply["field"]), value=what)
        return reply, results

    def _wait_until_ready(self) -> None:
        if self._is_ready:
            return
        if not self._connection.poll(START_LIMIT_S) or self._connection.recv_bytes() != READY:
            raise Unavailable("the process that runs references does not start: is torch installed (extra `torch`)?")
        self._is_ready = True


def source_of(card: Card, text: str) -> dict[str, Any]:
    """What a runner needs to know of a reference."""
    match card.origin:
        case "kernelbench":
            return {"origin": card.origin, "text": text, "constants": card.constants}
        case "flashinfer-bench":
            inputs = [
                {
                    "original": each.original,
                    "given": each.given,
                    "axes": list(each.axes),
                    "is_number": each.is_number,
                }
                for each in _inputs_of(card)
            ]
            return {"origin": card.origin, "text": text, "inputs": inputs, "scalars": card.scalars}


def _inputs_of(card: Card) -> list[ImportedOperand]:
    return [each for each in card.operands if each.role == "input"]


def _outputs_of(card: Card) -> list[ImportedOperand]:
    return [each for each in card.operands if each.role == "output"]


def _check_number(card: Card, found: int, needed: int, what: str) -> None:
    if found != needed:
        raise _wrong(card, f"has {found} {what}, its card {needed}")


def _shaped(array: npt.NDArray[Any], operand: ImportedOperand, card: Card, sizes: Sizes) -> npt.NDArray[Any]:
    """As kernels have it. Raises InvalidInput where the reference has it in another shape than its card says."""
    shape = tuple({**card.fixed, **sizes}[axis] for axis in operand.axes)
    needed = shape if operand.shape is None else operand.shape
    if array.shape != needed:
        raise _wrong(card, f"has {operand.name} in the shape {array.shape}, needed: {needed}")
    return array.reshape(shape)


def _wrong(card: Card, reason: str) -> InvalidInput:
    return InvalidInput(f"task {card.name}: its reference {reason}", field="reference", value=card.name)


def _in_type(array: npt.NDArray[Any], operand: ImportedOperand, card: Card) -> npt.NDArray[Any]:
    """As kernels get it. Raises InvalidInput for whole numbers beyond 32 bits."""
    if operand.is_floating:
        return array.astype(dtype_of(card.element_type))
    if array.size and not -LARGEST_INDEX <= int(array.min()) <= int(array.max()) < LARGEST_INDEX:
        raise _wrong(card, f"draws {operand.name} beyond 32 bits, which is what kernels get")
    return array.astype(np.int32)


def _sendable(array: npt.NDArray[Any], operand: ImportedOperand) -> npt.NDArray[Any]:
    """As the reference has it, in a type that NumPy itself has."""
    array = array if operand.shape is None else array.reshape(operand.shape)
    if not operand.is_floating:
        return np.ascontiguousarray(array, np.int32)
    return np.ascontiguousarray(array, np.float64 if operand.given == "float64" else np.float32)
