"""From a parsed kernel to the integer arrays that the machine runs.

Device functions are inlined (their parameters become local memory), rarely used instructions are expressed through
others, and each operand becomes the offset of a row in the register file of a warp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.control_flow import meeting_points
from services.evaluator.interpreter.lanes import LANES, row_bytes
from services.evaluator.interpreter.operations import MAX_DESTINATIONS, OPERATION_CODES, OPERATIONS
from services.evaluator.interpreter.ptx import (
    TYPE_BITS,
    Address,
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

MAX_CALL_DEPTH = 16
MAX_INSTRUCTIONS = 200_000
REDZONE_BYTES = 32
"""Unusable bytes between shared arrays, so that running over the end of one is found."""


@dataclass(frozen=True)
class SharedArray:
    """A static shared array: name, offset in the block's shared memory, size in bytes."""

    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class DecodedKernel:
    """A kernel ready to run: code (instructions x columns), constants and the sizes of its memories."""

    name: str
    parameters: tuple[Variable, ...]
    parameter_offsets: tuple[int, ...]
    parameter_bytes: int
    max_threads: int | None
    code: NDArray[np.int64]
    mnemonics: tuple[str, ...]
    register_bytes: int
    constants: tuple[tuple[int, int, int], ...]
    """(row offset, bytes of a lane, or 0 for a predicate word, value) of every constant row."""
    shared_arrays: tuple[SharedArray, ...]
    static_shared_bytes: int
    """Bytes that the arrays of the program take (as the compiler lays them out, without red zones)."""
    shared_layout_bytes: int
    dynamic_shared_offset: int
    local_bytes: int


def decode_kernel(text: PtxText, name: str, variable_addresses: Mapping[str, int]) -> DecodedKernel:
    """Decode an entry function; `variable_addresses` places the module's global and constant variables."""
    return _Decoder(text, text.functions[name], variable_addresses).decode()


@dataclass
class _Frame:
    """One (inlined) function: its registers, variables and labels."""

    function: Function
    registers: list[int]
    symbols: dict[str, tuple[str, int]]
    number: int
    carry: int
    depth: int
    return_label: str | None = None


@dataclass
class _Row:
    values: list[int]
    mnemonic: str
    label: tuple[int, str] | None = None


@dataclass
class _State:
    """What decoding accumulates."""

    rows: list[_Row] = field(default_factory=list)
    labels: dict[tuple[int, str], int] = field(default_factory=dict)
    constants: dict[tuple[int, int], int] = field(default_factory=dict)
    free_offset: int = layout.FIRST_FREE_OFFSET
    local_bytes: int = 0
    frames: int = 0


class _Decoder:
    def __init__(self, text: PtxText, entry: Function, variable_addresses: Mapping[str, int]) -> None:
        self._text = text
        self._entry = entry
        self._addresses = variable_addresses
        self._state = _State()
        self._shared: dict[str, SharedArray] = {}
        self._shared_bytes = 0
        self._static_shared_bytes = 0
        self._dynamic: Variable | None = None
        self._frame: _Frame
        self._instruction: Instruction
        self._guard: tuple[int, int] = (-1, 0)

    # -- story ----------------------------------------------------------------------------------------------------
    def decode(self) -> DecodedKernel:
        offsets, parameter_bytes = _place_parameters(self._entry.parameters)
        symbols = {
            parameter.name: ("param", offset) for parameter, offset in zip(self._entry.parameters, offsets, strict=True)
        }
        self._place_shared()
        self._decode_function(self._entry, symbols, depth=0, return_label=None)
        self._emit(layout.KIND_RETURN, line=0, mnemonic="ret", guard=(-1, 0))
        code = self._resolve()
        dynamic_offset = _align(self._shared_bytes, 128)
        return DecodedKernel(
            name=self._entry.name,
            parameters=self._entry.parameters,
            parameter_offsets=tuple(offsets),
            parameter_bytes=parameter_bytes,
            max_threads=self._entry.max_threads,
            code=code,
            mnemonics=tuple(row.mnemonic for row in self._state.rows),
            register_bytes=_align(self._state.free_offset + 256, 64),
            constants=tuple((row, size, value) for (value, size), row in self._state.constants.items()),
            shared_arrays=tuple(sorted(self._shared.values(), key=lambda array: array.offset)),
            static_shared_bytes=self._static_shared_bytes,
            shared_layout_bytes=self._shared_bytes,
            dynamic_shared_offset=dynamic_offset,
            local_bytes=_align(self._state.local_bytes, 16),
        )

    # -- functions and variables --------------------------------------------------------------------------------------
    def _place_shared(self) -> None:
        reachable = self._reachable_functions()
        named = {symbol for function in reachable for symbol in named_symbols(function)}
        declared = [variable for variable in self._text.variables if variable.name in named]
        for function in reachable:
            declared += function.variables
        dynamic = [variable for variable in declared if variable.space == "shared" and variable.is_external]
        for variable in declared:
            if variable.space == "shared" and not variable.is_external:
                offset = _align(self._shared_bytes, max(16, variable.alignment))
                self._shared[variable.name] = SharedArray(variable.name, offset, variable.size_bytes)
                self._shared_bytes = offset + variable.size_bytes + REDZONE_BYTES
                self._static_shared_bytes = _align(self._static_shared_bytes, variable.alignment) + variable.size_bytes
        self._dynamic_names = {variable.name for variable in dynamic}

    def _reachable_functions(self) -> list[Function]:
        found, pending = {self._entry.name: self._entry}, [self._entry]
        while pending:
            for symbol in named_symbols(pending.pop()):
                function = self._text.functions.get(symbol)
                if function is not None and function.name not in found:
                    found[function.name] = function
                    pending.append(function)
        return list(found.values())

    def _decode_function(
        self, function: Function, symbols: dict[str, tuple[str, int]], *, depth: int, return_label: str | None
    ) -> None:
        state = self._state
        registers = [self._new_row(kind) for kind in function.register_types]
        frame = _Frame(function, registers, dict(symbols), state.frames, self._new_row("pred"), depth, return_label)
        state.frames += 1
        for variable in function.variables:
            if variable.space in ("local", "param"):
                frame.symbols[variable.name] = ("local", self._new_local(variable))
        starts: dict[int, list[str]] = {}
        for label, index in function.labels.items():
            starts.setdefault(index, []).append(label)
        previous = getattr(self, "_frame", None)
        self._frame = frame
        for index, instruction in enumerate(function.instructions):
            for label in starts.get(index, ()):
                state.labels[(frame.number, label)] = len(state.rows)
            self._decode_instruction(instruction)
        for label in starts.get(len(function.instructions), ()):
            state.labels[(frame.number, label)] = len(state.rows)
        if return_label is not None:
            state.labels[(frame.number, return_label)] = len(state.rows)
        if previous is not None:
            self._frame = previous

    def _new_local(self, variable: Variable) -> int:
        offset = _align(self._state.local_bytes, max(8, variable.alignment))
        self._state.local_bytes = offset + variable.size_bytes
        return offset

    def _new_row(self, type_name: str) -> int:
        size = row_bytes(type_name)
        offset = _align(self._state.free_offset, 8 if type_name == "pred" else 64)
        self._state.free_offset = offset + size
        return offset

    # -- rows -----------------------------------------------------------------------------------------------------
    def _emit(
        self,
        kind: int,
        *,
        line: int | None = None,
        mnemonic: str | None = None,
        guard: tuple[int, int] | None = None,
        label: str | None = None,
        **columns: int,
    ) -> None:
        if len(self._state.rows) >= MAX_INSTRUCTIONS:
            raise UnsupportedPtx(f"kernel {self._entry.name} has over {MAX_INSTRUCTIONS} instructions")
        values = [0] * layout.NUM_COLUMNS
        values[layout.COLUMN_KIND] = kind
        values[layout.COLUMN_GUARD], values[layout.COLUMN_GUARD_NEGATED] = guard or self._guard
        values[layout.COLUMN_LINE] = self._instruction.line if line is None else line
        values[layout.COLUMN_JOIN] = -1
        for name, value in columns.items():
            values[getattr(layout, "COLUMN_" + name.upper())] = value
        target = None if label is None else (self._frame.number, label)
        self._state.rows.append(_Row(values, mnemonic or self._instruction.mnemonic, target))

    def _operate(self, name: str, results: Sequence[int], sources: Sequence[int]) -> None:
        rows: dict[str, int] = {f"d{index}": row for index, row in enumerate(results)}
        rows |= {f"s{index}": row for index, row in enumerate(sources)}
        self._emit(layout.KIND_OPERATION, code=OPERATION_CODES[name], **rows)

    def _temporary(self, type_name: str) -> int:
        return self._new_row(type_name)

    def _constant(self, value: int, lane_bytes: int) -> int:
        """The row of a constant: 4 or 8 bytes a lane, or 0 for a predicate."""
        value &= (1 << (8 * lane_bytes)) - 1 if lane_bytes else 0xFFFFFFFF
        key = (value, lane_bytes)
        if key not in self._state.constants:
            self._state.constants[key] = self._new_row({0: "pred", 4: "b32", 8: "b64"}[lane_bytes])
        return self._state.constants[key]

    def _fail(self, reason: str) -> UnsupportedPtx:
        return UnsupportedPtx(
            f"instruction '{self._instruction.mnemonic}' at line {self._instruction.line} of the program: {reason}"
        )

    # -- operands -----------------------------------------------------------------------------------------------------
    def _destination(self, operand: Operand | None, type_name: str) -> int:
        if operand is None:
            return layout.SINK_OFFSET
        if not isinstance(operand, Register):
            raise self._fail("the destination is not a register")
        self._check_width(operand, type_name)
        return self._frame.registers[operand.number]

    def _check_width(self, register: Register, type_name: str) -> None:
        declared = self._frame.function.register_types[register.number]
        if row_bytes(declared) != row_bytes(type_name):
            raise self._fail(f"a register of type .{declared} is used as .{type_name}")

    def _source(self, operand: Operand | None, type_name: str) -> int:
        lane_bytes = 0 if type_name == "pred" else row_bytes(type_name) // LANES
        match operand:
            case Register():
                self._check_width(operand, type_name)
                row = self._frame.registers[operand.number]
                if not operand.negated:
                    return row
                inverse = self._temporary("pred")
                self._operate("not.pred", [inverse], [row])
                return inverse
            case Immediate():
                value = operand.value
                if type_name == "pred":
                    value = -1 if value else 0
                elif operand.float_bits == 32 and lane_bytes == 8:
                    raise self._fail("a float32 literal is used as a 64-bit operand")
                return self._constant(value, lane_bytes)
            case Symbol():
                return self._symbol_source(operand, lane_bytes)
            case _:
                raise self._fail("the operand has an unexpected form")

    def _symbol_source(self, symbol: Symbol, lane_bytes: int) -> int:
        if symbol.name in layout.SPECIAL_REGISTERS and lane_bytes == 4:
            return layout.SPECIAL_OFFSET + 128 * layout.SPECIAL_REGISTERS.index(symbol.name)
        if symbol.name == "WARP_SZ":
            return self._constant(LANES, lane_bytes)
        if symbol.name.startswith(("%envreg", "%pm", "%gridid", "%is_explicit_cluster", "%reserved_smem_offset")):
            return self._constant(0, lane_bytes)
        return self._constant(self._address_of(symbol)[1], lane_bytes)

    def _address_of(self, symbol: Symbol) -> tuple[str, int]:
        """State space and address of a variable; relative to the window for shared, local and param."""
        if symbol.name in self._frame.symbols:
            space, address = self._frame.symbols[symbol.name]
        elif symbol.name in self._shared:
            space, address = "shared", self._shared[symbol.name].offset
        elif symbol.name in self._dynamic_names:
            space, address = "shared", _align(self._shared_bytes, 128)
        elif symbol.name in self._addresses:
            space, address = "global", self._addresses[symbol.name]
        else:
            raise self._fail(f"unknown name '{symbol.name}'")
        return space, address + symbol.offset

    # -- instructions -------------------------------------------------------------------------------------------------
    def _decode_instruction(self, instruction: Instruction) -> None:
        self._instruction = instruction
        self._guard = (-1, 0)
        if instruction.guard is not None:
            self._guard = (self._frame.registers[instruction.guard.number], int(instruction.guard.negated))
        handler = _HANDLERS.get(instruction.opcode[0])
        if handler is not None:
            handler(self)
        else:
            self._decode_operation()

    def _operands(self, least: int) -> tuple[Operand | None, ...]:
        operands = self._instruction.operands
        if len(operands) < least:
            raise self._fail(f"has {len(operands)} operands, needs {least}")
        return operands

    def _split_opcode(self) -> tuple[str, list[str], list[str]]:
        """Base name, modifiers that matter, and trailing types."""
        base, *parts = self._instruction.opcode
        types: list[str] = []
        while parts and (parts[-1] in TYPE_BITS or parts[-1] == "pred"):
            types.insert(0, parts.pop())
        return base, [part for part in parts if part not in _IGNORED_MODIFIERS], types

    def _decode_operation(self) -> None:
        base, modifiers, types = self._split_opcode()
        base = (
            "fma"
            if base == "mad"
            and types
            and types[-1][0] in "fb"
            and types[-1][1] != "1"
            and "lo" not in modifiers
            and types[-1] in ("f32", "f64")
            else base
        )
        for candidate in _type_spellings(base, types):
            name = ".".join([base, *modifiers, *candidate])
            if name in OPERATION_CODES:
                self._apply(name, self._instruction.operands)
                return
        raise self._fail("is not supported by the interpreter")

    def _apply(self, name: str, operands: Sequence[Operand | None]) -> None:
        operation = OPERATIONS[OPERATION_CODES[name]]
        count = len(operation.results)
        results = operands[0].elements if count > 1 and isinstance(operands[0], Group) else operands[:1]
        if len(results) != count or len(operands) - 1 != len(operation.sources):
            raise self._fail("has an unexpected number of operands")
        sources = [self._source(o, kind) for o, kind in zip(operands[1:], operation.sources, strict=True)]
        rows = [self._destination(o, kind) for o, kind in zip(results, operation.results, strict=True)]
        self._operate(name, rows, sources)

    def _decode_move(self) -> None:
        result, source = self._operands(2)[:2]
        kind = self._instruction.opcode[-1]
        if isinstance(source, Group):
            self._pack(result, source.elements, kind)
        elif isinstance(result, Group):
            self._unpack(result.elements, source, kind)
        elif isinstance(source, Symbol) and source.name in layout.CLOCK_REGISTERS:
            wide = int(kind.endswith("64"))
            self._emit(layout.KIND_CLOCK, d0=self._destination(result, kind), wide=wide)
        else:
            kind = kind if kind == "pred" else f"b{TYPE_BITS[kind]}"
            self._apply(f"mov.{kind}", (result, source))

    def _pack(self, result: Operand | None, parts: Sequence[Operand | None], kind: str) -> None:
        name = f"pack.{kind}.b{TYPE_BITS[kind] // len(parts)}"
        if name not in OPERATION_CODES:
            raise self._fail("packs registers in an unsupported way")
        self._apply(name, (result, *parts))

    def _unpack(self, parts: Sequence[Operand | None], source: Operand | None, kind: str) -> None:
        name = f"unpack.{kind}.b{TYPE_BITS[kind] // len(parts)}"
        if name not in OPERATION_CODES:
            raise self._fail("unpacks a register in an unsupported way")
        self._apply(name, (Group(tuple(parts)), source))

    def _decode_address_conversion(self) -> None:
        opcode = self._instruction.opcode
        space = next((part.split("::")[0] for part in opcode if part.split("::")[0] in _SPACES), "global")
        window = _WINDOWS[space]
        if "to" in opcode:
            window = -window
        result, source = self._operands(2)[:2]
        wide = opcode[-1].endswith("64")
        kind = "b64" if wide else "b32"
        if not window or not wide:
            self._apply(f"mov.{kind}", (result, source))
            return
        rows = [self._source(source, kind), self._constant(window, 8)]
        self._operate("add.b64", [self._destination(result, kind)], rows)

    def _decode_space_test(self) -> None:
        result, source = self._operands(2)[:2]
        space = self._instruction.opcode[1].split("::")[0]
        address = self._source(source, "b64")
        row = self._destination(result, "pred")
        if space == "global":
            self._operate("setp.ge.u64", [row], [address, self._constant(layout.VARIABLE_WINDOW, 8)])
            return
        relative = self._temporary("b64")
        self._operate("add.b64", [relative], [address, self._constant(-_WINDOWS[space], 8)])
        self._operate("setp.lt.u64", [row], [relative, self._constant(layout.WINDOW_BYTES, 8)])

    def _decode_comparison(self) -> None:
        _, *parts = self._instruction.opcode
        operands = self._operands(3)
        kind = parts[-1]
        joined = next((part for part in parts if part in ("and", "or", "xor")), None)
        name = self._comparison_name(parts[0], kind)
        results = operands[0].elements if isinstance(operands[0], Group) else (operands[0],)
        sources = [self._source(operand, kind) for operand in operands[1:3]]
        if kind.endswith("x2"):
            self._operate(name, [self._destination(result, "pred") for result in results], sources)
            return
        raw = self._temporary("pred") if joined or len(results) > 1 else self._destination(results[0], "pred")
        self._operate(name, [raw], sources)
        if not joined and len(results) == 1:
            return
        inverse = self._temporary("pred")
        self._operate("not.pred", [inverse], [raw])
        third = self._source(operands[3], "pred") if joined else None
        for result, row in zip(results, (raw, inverse), strict=False):
            target = self._destination(result, "pred")
            if third is None:
                self._operate("mov.pred", [target], [row])
            else:
                self._operate(f"{joined}.pred", [target], [row, third])

    def _comparison_name(self, comparison: str, kind: str) -> str:
        comparison = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(comparison, comparison)
        for spelling in (kind, f"b{TYPE_BITS[kind]}", f"u{TYPE_BITS[kind]}" if kind[0] == "b" else kind):
            if f"setp.{comparison}.{spelling}" in OPERATION_CODES:
                return f"setp.{comparison}.{spelling}"
        raise self._fail("compares in an unsupported way")

    def _decode_set(self) -> None:
        _, comparison, *parts = self._instruction.opcode
        result_kind, kind = parts[-2:]
        operands = self._operands(3)
        if kind.endswith("x2"):
            name = f"set.{comparison}.{result_kind}.{kind}"
            if name not in OPERATION_CODES:
                raise self._fail("compares in an unsupported way")
            self._apply(name, operands)
            return
        test = self._temporary("pred")
        sources = [self._source(operand, kind) for operand in operands[1:3]]
        self._operate(self._comparison_name(comparison, kind), [test], sources)
        joined = next((part for part in parts if part in ("and", "or", "xor")), None)
        if joined:
            self._operate(f"{joined}.pred", [test], [test, self._source(operands[3], "pred")])
        bits = TYPE_BITS[result_kind]
        one = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}.get(result_kind, -1)
        ones, zeros = self._constant(one, 4), self._constant(0, 4)
        self._operate(f"selp.b{bits}", [self._destination(operands[0], result_kind)], [ones, zeros, test])

    # -- carries ------------------------------------------------------------------------------------------------------
    def _decode_carrying(self) -> None:
        base, *parts = self._instruction.opcode
        takes = base in ("addc", "subc", "madc")
        gives = "cc" in parts
        if not takes and not gives:
            self._decode_operation()
            return
        kind = parts[-1]
        operands = self._operands(3)
        carry_in = self._frame.carry if takes else self._constant(0, 0)
        carry_out = self._frame.carry if gives else layout.SINK_OFFSET
        stem = {"add": "addc", "sub": "subc", "mad": "madc"}.get(base, base)
        name = f"madc.{parts[0]}.{kind}" if stem == "madc" else f"{stem}.b{TYPE_BITS[kind]}"
        if name not in OPERATION_CODES:
            raise self._fail("carries in an unsupported way")
        sources = [self._source(operand, kind) for operand in operands[1:]] + [carry_in]
        self._operate(name, [self._destination(operands[0], kind), carry_out], sources)

    # -- conversions --------------------------------------------------------------------------------------------------
    def _decode_conversion(self) -> None:
        _, modifiers, types = self._split_opcode()
        if len(types) != 2:
            raise self._fail("is not supported by the interpreter")
        result_kind, kind = types
        operands = self._operands(2)
        if result_kind.endswith("x2") or result_kind == "tf32":
            name = ".".join(["cvt", *modifiers, result_kind, kind])
            if name not in OPERATION_CODES:
                raise self._fail("converts in an unsupported way")
            self._apply(name, operands)
            return
        source = self._conversion_source(operands[1], kind)
        self._convert(self._destination(operands[0], result_kind), source, result_kind, kind, modifiers)

    def _conversion_source(self, operand: Operand | None, kind: str) -> int:
        """Integers may sit in registers wider than the type that is read."""
        if isinstance(operand, Register) and kind[0] in "bsu" and row_bytes(kind) == 4 * LANES:
            declared = self._frame.function.register_types[operand.number]
            if row_bytes(declared) == 8 * LANES:
                narrow = self._temporary("b32")
                self._operate("cvt.u32.u64", [narrow], [self._frame.registers[operand.number]])
                return narrow
        return self._source(operand, kind)

    def _convert(self, result: int, source: int, result_kind: str, kind: str, modifiers: Sequence[str]) -> None:
        to_float, from_float = "f" in result_kind, "f" in kind
        saturate = "sat" in modifiers
        way = next((modifier for modifier in modifiers if modifier[0] == "r" and modifier != "relu"), "")
        if not to_float and not from_float:
            if saturate:
                raise self._fail("saturating integer conversion is not supported")
            self._operate(f"cvt.{_signed(result_kind)}.{_signed(kind)}", [result], [source])
        elif not to_float:
            self._convert_to_integer(result, source, result_kind, kind, way)
        else:
            self._convert_to_float(result, source, result_kind, kind, way, saturate=saturate)

    def _convert_to_integer(self, result: int, source: int, result_kind: str, kind: str, way: str) -> None:
        if kind in ("f16", "bf16"):
            wide = self._temporary("f32")
            self._operate(f"cvt.f32.{kind}", [wide], [source])
            source, kind = wide, "f32"
        if way in ("rni", "rmi", "rpi"):
            rounded = self._temporary(kind)
            self._operate(f"cvt.{way}.{kind}.{kind}", [rounded], [source])
            source = rounded
        self._operate(f"cvt.rzi.{result_kind}.{kind}", [result], [source])

    def _convert_to_float(
        self, result: int, source: int, result_kind: str, kind: str, way: str, *, saturate: bool
    ) -> None:
        if result_kind in ("f16", "bf16") and kind != result_kind:
            if kind != "f32":
                wide = self._temporary("f32")
                self._convert_to_float(wide, source, "f32", kind, "", saturate=False)
                source = wide
            if saturate:
                clamped = self._temporary("f32")
                self._operate("cvt.sat.f32.f32", [clamped], [source])
                source = clamped
            self._operate_conversion(result, source, result_kind, "f32", way)
            return
        if kind in ("f16", "bf16") and result_kind == "f64":
            wide = self._temporary("f32")
            self._operate(f"cvt.f32.{kind}", [wide], [source])
            source, kind = wide, "f32"
        if kind == result_kind and not way:
            name = f"cvt.sat.{kind}.{kind}" if saturate else f"mov.b{TYPE_BITS[kind]}"
            if name not in OPERATION_CODES:
                raise self._fail("converts in an unsupported way")
            self._operate(name, [result], [source])
            return
        self._operate_conversion(result, source, result_kind, kind, way)
        if saturate:
            self._operate(f"cvt.sat.{result_kind}.{result_kind}", [result], [result])

    def _operate_conversion(self, result: int, source: int, result_kind: str, kind: str, way: str) -> None:
        name = ".".join(part for part in ("cvt", way, result_kind, _signed(kind)) if part)
        if name not in OPERATION_CODES:
            raise self._fail("converts in an unsupported way")
        self._operate(name, [result], [source])

    # -- memory -------------------------------------------------------------------------------------------------------
    def _memory_columns(self, address: Operand | None, space: str) -> dict[str, int]:
        if not isinstance(address, Address):
            raise self._fail("the address is not in brackets")
        offset = address.offset
        base, wide = self._constant(0, 8), 1
        if isinstance(address.base, Register):
            declared = self._frame.function.register_types[address.base.number]
            base, wide = self._frame.registers[address.base.number], int(declared.endswith("64"))
            if space == "param" and self._frame.depth:
                space = "local"
        elif isinstance(address.base, Symbol):
            found_space, place = self._address_of(address.base)
            offset += place
            space = found_space if space in ("param", "") or found_space in ("local", "shared") else space
        window = _WINDOWS.get(space, 0)
        return {
            "s0": base,
            "address_wide": wide,
            "offset": offset,
            "window": window,
            "space": _SPACES.get(space, layout.SPACE_GENERIC),
        }

    def _access(self) -> tuple[str, str, int, int]:
        """State space, element type, elements, and whether the access is strong."""
        opcode = self._instruction.opcode
        space = next((part.split("::")[0] for part in opcode[1:] if part.split("::")[0] in _SPACES), "")
        if "shared::cluster" in opcode:
            raise self._fail("distributed shared memory is not supported")
        count = next((int(part[1:]) for part in opcode if part in ("v2", "v4", "v8")), 1)
        kind = opcode[-1]
        if kind not in TYPE_BITS or kind == "b128" or count > MAX_DESTINATIONS:
            raise self._fail("has an unsupported type")
        return space, kind, count, int(any(part in _STRONG for part in opcode))

    def _elements(self, operand: Operand | None, count: int) -> tuple[Operand | None, ...]:
        elements = operand.elements if isinstance(operand, Group) else (operand,)
        if len(elements) != count:
            raise self._fail(f"names {len(elements)} registers for {count} elements")
        return elements

    def _data_width(self, elements: Sequence[Operand | None], kind: str) -> int:
        widths = {
            row_bytes(self._frame.function.register_types[element.number])
            for element in elements
            if isinstance(element, Register)
        }
        width = widths.pop() if len(widths) == 1 else row_bytes(kind)
        if widths or width < row_bytes(kind):
            raise self._fail("has registers of the wrong width")
        return int(width == 8 * LANES)

    def _decode_load(self) -> None:
        space, kind, count, strong = self._access()
        operands = self._operands(2)
        elements = self._elements(operands[0], count)
        wide = self._data_width(elements, kind)
        rows = {
            f"d{index}": self._destination(element, "b64" if wide else "b32") for index, element in enumerate(elements)
        }
        self._emit(
            layout.KIND_LOAD,
            **rows,
            **self._memory_columns(operands[1], space),
            size=TYPE_BITS[kind] // 8,
            count=count,
            signed=int(kind[0] == "s"),
            wide=wide,
            strong=strong,
        )

    def _decode_store(self) -> None:
        space, kind, count, strong = self._access()
        operands = self._operands(2)
        elements = self._elements(operands[1], count)
        wide = self._data_width(elements, kind)
        rows = {
            f"s{1 + index}": self._source(element, "b64" if wide else "b32") for index, element in enumerate(elements)
        }
        columns = self._memory_columns(operands[0], space)
        size = TYPE_BITS[kind] // 8
        self._emit(layout.KIND_STORE, **rows, **columns, size=size, count=count, wide=wide, strong=strong)

    def _decode_atomic(self) -> None:
        space, kind, count, _ = self._access()
        opcode = self._instruction.opcode
        operator = next((part for part in opcode[1:] if part in layout.ATOMIC_NAMES), None)
        if operator is None or count != 1 or kind not in _ATOMIC_TYPES:
            raise self._fail("is not supported by the interpreter")
        operands = list(self._operands(2))
        wide = int(kind.endswith("64"))
        row_kind = "b64" if wide else "b32"
        result: Operand | None = operands.pop(0) if opcode[0] == "atom" else None
        rows = {"d0": self._destination(result, row_kind)}
        for index, operand in enumerate(operands[1:3]):
            rows[f"s{1 + index}"] = self._source(operand, row_kind)
        self._emit(
            layout.KIND_ATOMIC,
            **rows,
            **self._memory_columns(operands[0], space),
            code=layout.ATOMIC_NAMES.index(operator),
            type=_ATOMIC_TYPES[kind],
            size=TYPE_BITS[kind] // 8,
            count=1,
            wide=wide,
            strong=1,
        )

    def _decode_copy(self) -> None:
        opcode = self._instruction.opcode
        if "bulk" in opcode or "reduce" in opcode:
            raise self._fail("is not supported by the interpreter")
        if "mbarrier" in opcode:
            self._emit(layout.KIND_NOTHING)
            return
        if opcode[2] in ("commit_group", "wait_group", "wait_all"):
            self._emit(layout.KIND_NOTHING)
            return
        operands = self._operands(3)
        size = operands[2]
        if not isinstance(size, Immediate):
            raise self._fail("the size is not a constant")
        columns = self._memory_columns(operands[1], "global")
        target = self._memory_columns(operands[0], "shared")
        read_bytes = self._constant(size.value, 4)
        if len(operands) > 3 and isinstance(operands[3], Register | Immediate):
            kind = "b32" if not isinstance(operands[3], Register) else self._register_kind(operands[3])
            if kind == "pred":
                raise self._fail("with an ignore-src predicate is not supported")
            read_bytes = self._source(operands[3], "b32")
        self._emit(
            layout.KIND_COPY,
            **columns,
            d0=target["s0"],
            d1=target["address_wide"],
            d2=target["offset"],
            s1=read_bytes,
            size=size.value,
            count=1,
        )

    def _register_kind(self, register: Register) -> str:
        return self._frame.function.register_types[register.number]

    # -- control flow -------------------------------------------------------------------------------------------------
    def _decode_branch(self) -> None:
        target = self._operands(1)[0]
        if not isinstance(target, Symbol):
            raise self._fail("the target is not a label")
        self._emit(layout.KIND_BRANCH, label=target.name)

    def _decode_indexed_branch(self) -> None:
        index, table = self._operands(2)[:2]
        if not isinstance(table, Symbol) or table.name not in self._frame.function.branch_tables:
            raise self._fail("the branch table is not known")
        if self._guard[0] >= 0:
            raise self._fail("a guarded indexed branch is not supported")
        targets = self._frame.function.branch_tables[table.name]
        row = self._source(index, "b32")
        for number, name in enumerate(targets[:-1]):
            hit = self._temporary("pred")
            self._operate("setp.eq.b32", [hit], [row, self._constant(number, 4)])
            self._emit(layout.KIND_BRANCH, label=name, guard=(hit, 0))
        self._emit(layout.KIND_BRANCH, label=targets[-1])

    def _decode_return(self) -> None:
        if self._instruction.opcode[0] == "ret" and self._frame.return_label is not None:
            self._emit(layout.KIND_BRANCH, label=self._frame.return_label)
        else:
            self._emit(layout.KIND_RETURN)

    def _decode_call(self) -> None:
        operands = list(self._operands(1))
        results = operands.pop(0) if isinstance(operands[0], Group) else Group(())
        name, arguments = operands[0], operands[1] if len(operands) > 1 else Group(())
        if not isinstance(name, Symbol) or not isinstance(results, Group) or not isinstance(arguments, Group):
            raise self._fail("indirect calls are not supported")
        if name.name == "vprintf":
            self._emit(layout.KIND_NOTHING)
            return
        if name.name in ("__assertfail", "__trap"):
            self._emit(layout.KIND_TRAP)
            return
        function = self._text.functions.get(name.name)
        if function is None or not function.has_body:
            raise self._fail(f"calls '{name.name}', which has no code in the module")
        if self._frame.depth >= MAX_CALL_DEPTH:
            raise self._fail(f"calls '{name.name}' recursively or over {MAX_CALL_DEPTH} levels deep")
        self._inline(function, results, arguments)

    def _inline(self, function: Function, results: Group, arguments: Group) -> None:
        symbols: dict[str, tuple[str, int]] = {}
        formal = (*function.results, *function.parameters)
        actual = (*results.elements, *arguments.elements)
        if len(formal) != len(actual):
            raise self._fail(f"calls '{function.name}' with {len(actual)} parameters instead of {len(formal)}")
        for variable, operand in zip(formal, actual, strict=True):
            if not isinstance(operand, Symbol):
                raise self._fail("passes a register as a parameter")
            symbols[variable.name] = self._address_of(operand)
        call = self._instruction
        skip = f"skip call {len(self._state.rows)}"
        if self._guard[0] >= 0:
            self._emit(layout.KIND_BRANCH, label=skip, guard=(self._guard[0], 1 - self._guard[1]))
        self._decode_function(function, symbols, depth=self._frame.depth + 1, return_label="return")
        self._state.labels[(self._frame.number, skip)] = len(self._state.rows)
        self._instruction = call

    # -- collectives and barriers -------------------------------------------------------------------------------------
    def _decode_shuffle(self) -> None:
        opcode = self._instruction.opcode
        if "sync" not in opcode:
            raise self._fail("warp functions without .sync are not supported")
        modes = {
            "up": layout.COLLECTIVE_SHUFFLE_UP,
            "down": layout.COLLECTIVE_SHUFFLE_DOWN,
            "bfly": layout.COLLECTIVE_SHUFFLE_XOR,
            "idx": layout.COLLECTIVE_SHUFFLE_INDEX,
        }
        result, *sources = self._operands(5)[:5]
        value, inside = result.elements if isinstance(result, Group) else (result, None)
        rows = {f"s{index}": self._source(operand, "b32") for index, operand in enumerate(sources)}
        self._emit(
            layout.KIND_COLLECTIVE,
            code=modes[opcode[2]],
            d0=self._destination(value, "b32"),
            d1=self._destination(inside, "pred"),
            **rows,
        )

    def _decode_vote(self) -> None:
        opcode = self._instruction.opcode
        modes = {
            "any": layout.COLLECTIVE_VOTE_ANY,
            "all": layout.COLLECTIVE_VOTE_ALL,
            "uni": layout.COLLECTIVE_VOTE_UNIFORM,
            "ballot": layout.COLLECTIVE_BALLOT,
        }
        if "sync" not in opcode:
            raise self._fail("warp functions without .sync are not supported")
        result, source, members = self._operands(3)[:3]
        kind = "b32" if opcode[2] == "ballot" else "pred"
        self._emit_collective(modes[opcode[2]], result, kind, source, "pred", members)

    def _decode_match(self) -> None:
        opcode = self._instruction.opcode
        result, source, members = self._operands(3)[:3]
        value, all_equal = result.elements if isinstance(result, Group) else (result, None)
        code = layout.COLLECTIVE_MATCH_ANY if "any" in opcode else layout.COLLECTIVE_MATCH_ALL
        extra = {"d1": self._destination(all_equal, "pred"), "wide": int(opcode[-1].endswith("64"))}
        self._emit_collective(code, value, "b32", source, opcode[-1], members, **extra)

    def _decode_reduction(self) -> None:
        opcode = self._instruction.opcode
        if opcode[2] not in layout.ATOMIC_NAMES or opcode[-1] not in ("s32", "u32", "b32"):
            raise self._fail("is not supported by the interpreter")
        result, source, members = self._operands(3)[:3]
        extra = {"type": layout.ATOMIC_NAMES.index(opcode[2]), "signed": int(opcode[-1] == "s32")}
        self._emit_collective(layout.COLLECTIVE_REDUCE, result, "b32", source, "b32", members, **extra)

    def _decode_election(self) -> None:
        result, members = self._operands(2)[:2]
        leader, elected = result.elements if isinstance(result, Group) else (result, None)
        row = self._destination(elected, "pred")
        source = Immediate(0)
        self._emit_collective(layout.COLLECTIVE_ELECT, leader, "b32", source, "b32", members, d1=row)

    def _emit_collective(
        self,
        code: int,
        result: Operand | None,
        result_kind: str,
        source: Operand | None,
        source_kind: str,
        members: Operand | None,
        **extra: int,
    ) -> None:
        self._emit(
            layout.KIND_COLLECTIVE,
            code=code,
            d0=self._destination(result, result_kind),
            s0=self._source(source, source_kind),
            s3=self._source(members, "b32"),
            **extra,
        )

    def _decode_barrier(self) -> None:
        opcode = self._instruction.opcode
        if "cluster" in opcode:
            self._emit(layout.KIND_BARRIER, code=layout.BARRIER_SYNC, s0=self._constant(0, 4), s1=self._constant(0, 4))
            return
        if "warp" in opcode:
            row = self._source(self._operands(1)[0], "b32")
            self._emit(layout.KIND_COLLECTIVE, code=layout.COLLECTIVE_WARP_BARRIER, s3=row)
            return
        operands = list(self._operands(1))
        if "red" in opcode:
            self._decode_reducing_barrier(operands)
            return
        mode = layout.BARRIER_ARRIVE if "arrive" in opcode else layout.BARRIER_SYNC
        number = self._source(operands[0], "b32")
        threads = self._source(operands[1], "b32") if len(operands) > 1 else self._constant(0, 4)
        aligned = int(opcode[0] == "bar" or "aligned" in opcode)
        self._emit(layout.KIND_BARRIER, code=mode, s0=number, s1=threads, signed=aligned)

    def _decode_reducing_barrier(self, operands: list[Operand | None]) -> None:
        opcode = self._instruction.opcode
        modes = {"popc": layout.BARRIER_POPC, "and": layout.BARRIER_AND, "or": layout.BARRIER_OR}
        mode = next((modes[part] for part in opcode if part in modes), None)
        if mode is None:
            raise self._fail("is not supported by the interpreter")
        result, number, *middle, predicate = operands
        self._emit(
            layout.KIND_BARRIER,
            code=mode,
            d0=self._destination(result, "b32" if mode == layout.BARRIER_POPC else "pred"),
            s0=self._source(number, "b32"),
            s1=self._source(middle[0], "b32") if middle else self._constant(0, 4),
            s2=self._source(predicate, "pred"),
            signed=int(opcode[0] == "bar" or "aligned" in opcode),
        )

    def _decode_phase_barrier(self) -> None:
        opcode = self._instruction.opcode
        action = opcode[1]
        operands = list(self._operands(1))
        if "expect_tx" in opcode or "shared::cluster" in opcode or "parity" in opcode or action in _PHASE_UNSUPPORTED:
            raise self._fail("is not supported by the interpreter")
        if action == "inval":
            self._emit(layout.KIND_NOTHING)
            return
        result = operands.pop(0) if action in ("arrive", "arrive_drop", "test_wait", "try_wait") else None
        columns = self._memory_columns(operands[0], "shared")
        common = {**columns, "size": 8, "count": 1, "strong": 1}
        if action == "init":
            count = self._source(operands[1], "b32")
            self._emit(layout.KIND_PHASE_BARRIER, code=layout.PHASE_INIT, s1=count, **common)
        elif action in ("arrive", "arrive_drop"):
            count = self._source(operands[1], "b32") if len(operands) > 1 else self._constant(1, 4)
            code = layout.PHASE_ARRIVE if action == "arrive" else layout.PHASE_DROP
            row = self._destination(result, "b64")
            self._emit(layout.KIND_PHASE_BARRIER, code=code, d0=row, s1=count, **common)
        else:
            token = self._source(operands[1], "b64")
            row = self._destination(result, "pred")
            self._emit(layout.KIND_PHASE_BARRIER, code=layout.PHASE_WAIT, d0=row, s1=token, **common)

    # -- the rest -----------------------------------------------------------------------------------------------------
    def _decode_nothing(self) -> None:
        self._emit(layout.KIND_NOTHING)

    def _decode_fence(self) -> None:
        self._emit(layout.KIND_FENCE)

    def _decode_trap(self) -> None:
        self._emit(layout.KIND_TRAP)

    def _decode_active_mask(self) -> None:
        self._emit(layout.KIND_ACTIVE_MASK, d0=self._destination(self._operands(1)[0], "b32"))

    def _decode_policy(self) -> None:
        self._operate("mov.b64", [self._destination(self._operands(1)[0], "b64")], [self._constant(0, 8)])

    # -- resolution ---------------------------------------------------------------------------------------------------
    def _resolve(self) -> NDArray[np.int64]:
        state = self._state
        for row in state.rows:
            if row.label is not None:
                if row.label not in state.labels:
                    raise UnsupportedPtx(f"kernel {self._entry.name}: unknown label '{row.label[1]}'")
                row.values[layout.COLUMN_TARGET] = state.labels[row.label]
        code = np.array([row.values for row in state.rows], dtype=np.int64)
        _set_meeting_points(code)
        _mark_waits(code)
        return code


def _set_meeting_points(code: NDArray[np.int64]) -> None:
    count = len(code)
    kinds, guards = code[:, layout.COLUMN_KIND].tolist(), code[:, layout.COLUMN_GUARD].tolist()
    targets = code[:, layout.COLUMN_TARGET].tolist()
    successors: list[list[int]] = []
    for index in range(count):
        following = [index + 1] if guards[index] >= 0 or kinds[index] not in _ENDS else []
        if kinds[index] == layout.KIND_BRANCH:
            following.append(targets[index])
        elif kinds[index] in _ENDS:
            following.append(count)
        successors.append(following)
    meeting = meeting_points(successors)
    for index in range(count):
        if kinds[index] == layout.KIND_BRANCH and guards[index] >= 0:
            place = meeting[index]
            at_exit = place in (-1, count) or (kinds[place] == layout.KIND_RETURN and guards[place] < 0)
            code[index, layout.COLUMN_JOIN] = -1 if at_exit else place


_ENDS = (layout.KIND_BRANCH, layout.KIND_RETURN, layout.KIND_TRAP)


def _mark_waits(code: NDArray[np.int64]) -> None:
    """Mark instructions that use a value loaded from device memory earlier in their basic block, or end the block."""
    starts = set(code[code[:, layout.COLUMN_KIND] == layout.KIND_BRANCH, layout.COLUMN_TARGET].tolist())
    first, last = layout.COLUMN_S0, layout.COLUMN_S4 + 1
    pending: set[int] = set()
    for index, values in enumerate(code.tolist()):
        if index in starts:
            pending.clear()
        kind = values[layout.COLUMN_KIND]
        uses = pending.intersection(values[first:last]) or values[layout.COLUMN_GUARD] in pending
        ends = kind in _ENDS
        if pending and (uses or ends):
            code[index, layout.COLUMN_WAITS] = 1
            pending.clear()
        if kind == layout.KIND_LOAD and values[layout.COLUMN_SPACE] in (layout.SPACE_GLOBAL, layout.SPACE_GENERIC):
            pending.update(values[layout.COLUMN_D0 : layout.COLUMN_D0 + max(1, values[layout.COLUMN_COUNT])])


def _place_parameters(parameters: Sequence[Variable]) -> tuple[list[int], int]:
    offsets, end = [], 0
    for parameter in parameters:
        end = _align(end, parameter.alignment)
        offsets.append(end)
        end += parameter.size_bytes
    return offsets, _align(end, 8)


def named_symbols(function: Function) -> set[str]:
    names: set[str] = set()
    pending: list[Operand | None] = [operand for i in function.instructions for operand in i.operands]
    while pending:
        operand = pending.pop()
        match operand:
            case Symbol():
                names.add(operand.name)
            case Address() if isinstance(operand.base, Symbol):
                names.add(operand.base.name)
            case Group():
                pending.extend(operand.elements)
            case _:
                pass
    return names


def _type_spellings(base: str, types: list[str]) -> list[list[str]]:
    """The types as written, then as untyped bits where that means the same."""
    spellings = [types]
    if all(kind[0] in "sub" and kind[1] != "f" for kind in types) or base in _BITWISE:
        untyped = [kind if kind == "pred" else f"b{TYPE_BITS[kind]}" for kind in types]
        spellings.append(untyped)
        if len(types) > 1:
            spellings.append([untyped[0], *types[1:]])
        spellings.append([f"u{kind[1:]}" if kind[0] == "b" else kind for kind in types])
    return spellings


def _signed(kind: str) -> str:
    return "u" + kind[1:] if kind[0] == "b" and kind[1] != "f" else kind


def _align(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


_IGNORED_MODIFIERS = frozenset({"rn", "ftz", "noftz", "approx", "full", "satfinite"})
_BITWISE = frozenset({"selp", "slct", "and", "or", "xor", "not"})
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "acq_rel", "mmio"})
_SPACES = {
    "global": layout.SPACE_GLOBAL,
    "shared": layout.SPACE_SHARED,
    "local": layout.SPACE_LOCAL,
    "const": layout.SPACE_CONST,
    "param": layout.SPACE_PARAM,
}
_WINDOWS = {
    "shared": layout.SHARED_WINDOW,
    "local": layout.LOCAL_WINDOW,
    "param": layout.PARAM_WINDOW,
    "global": 0,
    "const": 0,
}
_ATOMIC_TYPES = {
    "s32": layout.TYPE_S32,
    "u32": layout.TYPE_U32,
    "b32": layout.TYPE_U32,
    "s64": layout.TYPE_S64,
    "u64": layout.TYPE_U64,
    "b64": layout.TYPE_U64,
    "f32": layout.TYPE_F32,
    "f64": layout.TYPE_F64,
    "b16": layout.TYPE_B16,
    "f16": layout.TYPE_F16,
    "bf16": layout.TYPE_BF16,
    "f16x2": layout.TYPE_F16X2,
    "bf16x2": layout.TYPE_BF16X2,
}
_PHASE_UNSUPPORTED = ("expect_tx", "complete_tx", "pending_count")

_HANDLERS: dict[str, Callable[[_Decoder], None]] = {
    "mov": _Decoder._decode_move,
    "cvta": _Decoder._decode_address_conversion,
    "isspacep": _Decoder._decode_space_test,
    "setp": _Decoder._decode_comparison,
    "set": _Decoder._decode_set,
    "add": _Decoder._decode_carrying,
    "addc": _Decoder._decode_carrying,
    "sub": _Decoder._decode_carrying,
    "subc": _Decoder._decode_carrying,
    "mad": _Decoder._decode_carrying,
    "madc": _Decoder._decode_carrying,
    "cvt": _Decoder._decode_conversion,
    "ld": _Decoder._decode_load,
    "ldu": _Decoder._decode_load,
    "st": _Decoder._decode_store,
    "atom": _Decoder._decode_atomic,
    "red": _Decoder._decode_atomic,
    "cp": _Decoder._decode_copy,
    "bra": _Decoder._decode_branch,
    "brx": _Decoder._decode_indexed_branch,
    "ret": _Decoder._decode_return,
    "exit": _Decoder._decode_return,
    "call": _Decoder._decode_call,
    "shfl": _Decoder._decode_shuffle,
    "vote": _Decoder._decode_vote,
    "match": _Decoder._decode_match,
    "redux": _Decoder._decode_reduction,
    "elect": _Decoder._decode_election,
    "bar": _Decoder._decode_barrier,
    "barrier": _Decoder._decode_barrier,
    "mbarrier": _Decoder._decode_phase_barrier,
    "membar": _Decoder._decode_fence,
    "fence": _Decoder._decode_fence,
    "trap": _Decoder._decode_trap,
    "brkpt": _Decoder._decode_trap,
    "activemask": _Decoder._decode_active_mask,
    "createpolicy": _Decoder._decode_policy,
    "nanosleep": _Decoder._decode_nothing,
    "prefetch": _Decoder._decode_nothing,
    "prefetchu": _Decoder._decode_nothing,
    "discard": _Decoder._decode_nothing,
    "applypriority": _Decoder._decode_nothing,
    "griddepcontrol": _Decoder._decode_nothing,
    "setmaxnreg": _Decoder._decode_nothing,
    "pmevent": _Decoder._decode_nothing,
}
