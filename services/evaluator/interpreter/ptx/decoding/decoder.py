"""The decoder's core: registers, constants, variables and labels of a kernel, and the rows of code they go into.

Each operand becomes the offset of a row in the register file of a warp. Device functions are inlined: their parameters
become local memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.machine.lanes import LANES, float_bits, row_bytes
from services.evaluator.interpreter.machine.operations import OPERATION_CODES, OPERATIONS
from services.evaluator.interpreter.ptx.decoding.flow import mark_waits, set_meeting_points
from services.evaluator.interpreter.ptx.decoding.kernel import DecodedKernel
from services.evaluator.interpreter.ptx.decoding.placement import aligned, place_parameters, place_shared
from services.evaluator.interpreter.ptx.parsing import (
    Function,
    Group,
    Immediate,
    Instruction,
    Operand,
    PtxText,
    Register,
    Symbol,
    UnsupportedPtx,
    Variable,
)

MAX_INSTRUCTIONS = 100_000
MAX_REGISTER_BYTES = 16 << 20
"""Of the register file of one warp."""


@dataclass
class Frame:
    """One (inlined) function: the rows of its registers, its variables as (space, address), its carry flag."""

    function: Function
    registers: list[int]
    symbols: dict[str, tuple[str, int]]
    number: int
    carry: int
    depth: int
    return_label: str | None = None


@dataclass
class _Activation:
    """A function that is being decoded: where it stands, and what follows it in its caller."""

    frame: Frame
    caller: Frame
    labels: Mapping[int, Sequence[str]]
    skip: str | None
    position: int = 0


@dataclass
class Row:
    """An instruction of the machine: its columns, and the label it branches to as (frame, name)."""

    columns: list[int]
    mnemonic: str
    label: tuple[int, str] | None = None


@dataclass
class Progress:
    """What decoding accumulates."""

    rows: list[Row] = field(default_factory=list)
    labels: dict[tuple[int, str], int] = field(default_factory=dict)
    constants: dict[tuple[int, int], int] = field(default_factory=dict)
    register_bytes: int = layout.FIRST_FREE_OFFSET
    local_bytes: int = 0
    frames: int = 0


class Decoder:
    """Decodes one kernel; `handlers` decode the instructions by the first part of their mnemonic."""

    def __init__(
        self,
        text: PtxText,
        entry: Function,
        variable_addresses: Mapping[str, int],
        handlers: Mapping[str, Handler],
        default: Handler,
    ) -> None:
        self.text = text
        self.entry = entry
        self.progress = Progress()
        self.frame = Frame(entry, [], {}, -1, layout.SINK_OFFSET, -1)
        self.instruction = Instruction(("entry",), (), None, 0)
        self.guard = NO_GUARD
        self._addresses = variable_addresses
        self._handlers = handlers
        self._default = default
        self._shared = place_shared(text, entry)
        self._open: list[_Activation] = []

    # -- story
    def decode(self) -> DecodedKernel:
        """Decode the kernel and all functions it calls."""
        offsets, parameter_bytes = place_parameters(self.entry.parameters)
        names = [parameter.name for parameter in self.entry.parameters]
        symbols = {name: ("param", offset) for name, offset in zip(names, offsets, strict=True)}
        self.enter(self.entry, symbols, None, None)
        self._decode_all()
        self.instruction, self.guard = Instruction(("ret",), (), None, 0), NO_GUARD
        self.emit(layout.KIND_RETURN)
        progress = self.progress
        return DecodedKernel(
            name=self.entry.name,
            parameters=self.entry.parameters,
            parameter_offsets=offsets,
            parameter_bytes=parameter_bytes,
            max_threads=self.entry.max_threads,
            code=self._resolve(),
            mnemonics=tuple(row.mnemonic for row in progress.rows),
            register_bytes=aligned(progress.register_bytes + 8 * LANES, 64),
            constants=tuple((row, size, value) for (value, size), row in progress.constants.items()),
            shared_arrays=self._shared.arrays,
            static_shared_bytes=self._shared.static_bytes,
            dynamic_shared_offset=self._shared.dynamic_offset,
            local_bytes=aligned(progress.local_bytes, 16),
        )

    def enter(
        self, function: Function, symbols: Mapping[str, tuple[str, int]], return_label: str | None, skip: str | None
    ) -> None:
        """Go on with a function in place, its parameters bound to (space, address); `skip` labels what follows it."""
        registers = [self.new_row(kind) for kind in function.register_types]
        number, depth = self.progress.frames, self.frame.depth + 1
        frame = Frame(function, registers, dict(symbols), number, self.new_row("pred"), depth, return_label)
        self.progress.frames += 1
        for variable in function.variables:
            if variable.space in ("local", "param"):
                frame.symbols[variable.name] = ("local", self._new_local(variable))
        labels: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            labels.setdefault(index, []).append(label)
        self._open.append(_Activation(frame, self.frame, labels, skip))
        self.frame = frame

    def is_inside(self, function: Function) -> bool:
        """Whether the function is being decoded: a call of it would never end."""
        return any(activation.frame.function is function for activation in self._open)

    def _decode_all(self) -> None:
        """Instructions of the innermost function, until it and all that called it are done."""
        while self._open:
            activation = self._open[-1]
            instructions = activation.frame.function.instructions
            index = activation.position
            self._place_labels(activation.labels.get(index, ()))
            if index < len(instructions):
                activation.position += 1
                self._decode_instruction(instructions[index])
            else:
                self._leave(self._open.pop())

    def _leave(self, activation: _Activation) -> None:
        if activation.frame.return_label is not None:
            self._place_labels([activation.frame.return_label])
        self.frame = activation.caller
        if activation.skip is not None:
            self.place_label(activation.skip)

    def place_label(self, name: str) -> None:
        """Let a label of the current function name the next instruction."""
        self.progress.labels[(self.frame.number, name)] = len(self.progress.rows)

    def _place_labels(self, names: Sequence[str]) -> None:
        for name in names:
            self.place_label(name)

    def _decode_instruction(self, instruction: Instruction) -> None:
        self.instruction = instruction
        self.guard = NO_GUARD
        if instruction.guard is not None:
            self.guard = (self.frame.registers[instruction.guard.number], int(instruction.guard.negated))
        self._handlers.get(instruction.opcode[0], self._default)(self)

    def _resolve(self) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        progress = self.progress
        for row in progress.rows:
            if row.label is not None:
                if row.label not in progress.labels:
                    raise UnsupportedPtx(f"kernel {self.entry.name}: unknown label '{row.label[1]}'")
                row.columns[layout.COLUMN_TARGET] = progress.labels[row.label]
        code = np.array([row.columns for row in progress.rows], dtype=np.int64)
        set_meeting_points(code)
        mark_waits(code)
        return code

    # -- rows
    def emit(
        self,
        kind: int,
        columns: Mapping[str, int] | None = None,
        *,
        guard: tuple[int, int] | None = None,
        label: str | None = None,
        **more: int,
    ) -> None:
        """Append an instruction; columns are named as in layout.COLUMN_*, in lower case."""
        rows = self.progress.rows
        if len(rows) >= MAX_INSTRUCTIONS:
            raise UnsupportedPtx(f"kernel {self.entry.name} has over {MAX_INSTRUCTIONS} instructions")
        values = [0] * layout.NUM_COLUMNS
        values[layout.COLUMN_KIND] = kind
        values[layout.COLUMN_GUARD], values[layout.COLUMN_GUARD_NEGATED] = guard or self.guard
        values[layout.COLUMN_LINE] = self.instruction.line
        values[layout.COLUMN_JOIN] = -1
        for name, value in {**(columns or {}), **more}.items():
            values[getattr(layout, "COLUMN_" + name.upper())] = value
        target = None if label is None else (self.frame.number, label)
        rows.append(Row(values, self.instruction.mnemonic, target))

    def operate(self, name: str, results: Sequence[int], sources: Sequence[int]) -> None:
        """Append a lane-wise operation on rows."""
        rows = {f"d{index}": row for index, row in enumerate(results)}
        rows |= {f"s{index}": row for index, row in enumerate(sources)}
        self.emit(layout.KIND_OPERATION, rows, code=OPERATION_CODES[name])

    def apply(self, name: str, operands: Sequence[Operand | None]) -> None:
        """Append a lane-wise operation on operands: the result (or a group of results), then the sources."""
        operation = OPERATIONS[OPERATION_CODES[name]]
        count = len(operation.results)
        results = operands[0].elements if count > 1 and isinstance(operands[0], Group) else operands[:1]
        if len(results) != count or len(operands) - 1 != len(operation.sources):
            raise self.fail("has an unexpected number of operands")
        sources = [self.source(o, kind) for o, kind in zip(operands[1:], operation.sources, strict=True)]
        rows = [self.destination(o, kind) for o, kind in zip(results, operation.results, strict=True)]
        self.operate(name, rows, sources)

    def new_row(self, type_name: str) -> int:
        """Offset of a new register row for values of a type."""
        progress = self.progress
        offset = aligned(progress.register_bytes, 8 if type_name == "pred" else 64)
        progress.register_bytes = offset + row_bytes(type_name)
        if progress.register_bytes > MAX_REGISTER_BYTES:
            raise UnsupportedPtx(f"kernel {self.entry.name} has too many virtual registers")
        return offset

    def _new_local(self, variable: Variable) -> int:
        offset = aligned(self.progress.local_bytes, max(8, variable.alignment))
        self.progress.local_bytes = offset + variable.size_bytes
        return offset

    def constant(self, value: int, lane_bytes: int) -> int:
        """The row of a constant: 4 or 8 bytes a lane, or 0 for a predicate."""
        value &= (1 << (8 * lane_bytes)) - 1 if lane_bytes else 0xFFFFFFFF
        constants = self.progress.constants
        if (value, lane_bytes) not in constants:
            constants[(value, lane_bytes)] = self.new_row({0: "pred", 4: "b32", 8: "b64"}[lane_bytes])
        return constants[(value, lane_bytes)]

    def fail(self, reason: str) -> UnsupportedPtx:
        """The error for the current instruction."""
        return UnsupportedPtx(
            f"instruction '{self.instruction.mnemonic}' at line {self.instruction.line} of the program: {reason}"
        )

    # -- operands
    def operands(self, least: int) -> tuple[Operand | None, ...]:
        """The operands of the current instruction, at least so many."""
        operands = self.instruction.operands
        if len(operands) < least:
            raise self.fail(f"has {len(operands)} operands, needs {least}")
        return operands

    def kind_of(self, register: Register) -> str:
        """The declared type of a register."""
        return self.frame.function.register_types[register.number]

    def destination(self, operand: Operand | None, type_name: str) -> int:
        """The row of a result; `_` goes to a row that nobody reads."""
        if operand is None:
            return layout.SINK_OFFSET
        if not isinstance(operand, Register):
            raise self.fail("the destination is not a register")
        self._check_width(operand, type_name)
        return self.frame.registers[operand.number]

    def _check_width(self, register: Register, type_name: str) -> None:
        declared = self.kind_of(register)
        if row_bytes(declared) != row_bytes(type_name):
            raise self.fail(f"a register of type .{declared} is used as .{type_name}")

    def source(self, operand: Operand | None, type_name: str) -> int:
        """The row of a source; constants get rows of their own, negated predicates are computed."""
        lane_bytes = 0 if type_name == "pred" else row_bytes(type_name) // LANES
        match operand:
            case Register():
                self._check_width(operand, type_name)
                row = self.frame.registers[operand.number]
                if not operand.negated:
                    return row
                inverse = self.new_row("pred")
                self.operate("not.pred", [inverse], [row])
                return inverse
            case Immediate():
                if type_name == "pred":
                    return self.constant(-1 if operand.value else 0, 0)
                if operand.float_bits == 32 and lane_bytes == 8:
                    raise self.fail("a float32 literal is used as a 64-bit operand")
                if operand.float_bits == 64 and lane_bytes == 4:
                    return self.constant(self._narrowed(operand, type_name), lane_bytes)
                return self.constant(operand.value, lane_bytes)
            case Symbol():
                return self._symbol_source(operand, lane_bytes)
            case _:
                raise self.fail("the operand has an unexpected form")

    def _narrowed(self, literal: Immediate, type_name: str) -> int:
        """Decimal literals are float64 numbers, rounded where an instruction takes float32 (`mov`: four bytes)."""
        if type_name not in ("f32", "b32"):
            raise self.fail(f"a float64 literal is used as an operand of type {type_name}")
        return float_bits(float(np.uint64(literal.value).view(np.float64)), "f32")

    def _symbol_source(self, symbol: Symbol, lane_bytes: int) -> int:
        if symbol.name in layout.SPECIAL_REGISTERS and lane_bytes == 4:
            return layout.SPECIAL_OFFSET + 4 * LANES * layout.SPECIAL_REGISTERS.index(symbol.name)
        if symbol.name == "WARP_SZ":
            return self.constant(LANES, lane_bytes)
        if symbol.name.startswith(_ZERO_REGISTERS):
            return self.constant(0, lane_bytes)
        return self.constant(self.address_of(symbol)[1], lane_bytes)

    def address_of(self, symbol: Symbol) -> tuple[str, int]:
        """State space and address of a variable; relative to the window for shared, local and param."""
        shared = self._shared.address(symbol.name)
        if symbol.name in self.frame.symbols:
            space, address = self.frame.symbols[symbol.name]
        elif shared is not None:
            space, address = "shared", shared
        elif symbol.name in self._addresses:
            space, address = "global", self._addresses[symbol.name]
        else:
            raise self.fail(f"unknown name '{symbol.name}'")
        return space, address + symbol.offset


Handler = Callable[[Decoder], None]
NO_GUARD = (-1, 0)
_ZERO_REGISTERS = ("%envreg", "%pm", "%gridid", "%is_explicit_cluster", "%reserved_smem_offset")
