"""Loading a PTX module and launching its kernels on the interpreter.

A launch copies its buffers into one arena, runs the machine inside it and copies what the kernel may write back, so
that no address the program computes can reach memory of the host. What this does not protect against: exhaustion of
the process's memory by the size of the caller's own buffers, and run time (bounded only by `max_warp_steps`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.evaluator.interpreter import layout
from services.evaluator.interpreter.machine import state as columns
from services.evaluator.interpreter.machine.findings import Place, describe_finding
from services.evaluator.interpreter.machine.machine import run_blocks
from services.evaluator.interpreter.machine.report import Counts, Finding, LaunchReport, LineCounts
from services.evaluator.interpreter.machine.state import Memory
from services.evaluator.interpreter.ptx.decoding import DecodedKernel, decode_kernel, named_symbols
from services.evaluator.interpreter.ptx.parsing import (
    TYPE_BITS,
    Immediate,
    PtxText,
    Symbol,
    UnsupportedPtx,
    Variable,
    parse_ptx,
)

DEFAULT_MAX_WARP_STEPS = 50_000_000
MAX_THREADS = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_SHARED_BYTES = 227 * 1024
MAX_STATIC_SHARED_BYTES = 48 * 1024
MAX_LOCAL_BYTES = 256 << 20
NUM_MULTIPROCESSORS = 132
_ALIGNMENT = 256


@dataclass(frozen=True)
class Buffer:
    """Device memory for a pointer argument: a one-dimensional contiguous array that the launch reads and (if writable)
    writes. The buffer starts at `offset_bytes` past a 256-byte boundary."""

    name: str
    array: NDArray[Any]
    writable: bool
    written: NDArray[np.uint8] | None = None
    """For each 4-byte word a bit for each byte that kernels have written: reads of other bytes are reported, writes are
    added (see `nothing_written`). None: everything may be read."""
    offset_bytes: int = 0
    dependent: bool = False
    """Kernels before this one may still be writing it: only accesses after `griddepcontrol.wait` are allowed."""

    def __post_init__(self) -> None:
        if self.array.ndim != 1 or not self.array.flags.c_contiguous:
            raise ValueError(f"buffer '{self.name}' must be one-dimensional and contiguous")
        if self.array.nbytes > layout.BUFFER_STRIDE // 2:
            raise ValueError(
                f"buffer '{self.name}' has {self.array.nbytes} bytes, the limit is {layout.BUFFER_STRIDE // 2}"
            )
        if not 0 <= self.offset_bytes < _ALIGNMENT:
            raise ValueError(f"buffer '{self.name}': offset_bytes {self.offset_bytes} is not in [0, {_ALIGNMENT})")
        if self.written is not None and (self.offset_bytes % 4 or len(self.written) != _num_words(self.array)):
            raise ValueError(
                f"buffer '{self.name}': `written` needs an entry for each of its words, on a word boundary"
            )


def nothing_written(array: NDArray[Any]) -> NDArray[np.uint8]:
    """`Buffer.written` of memory that no kernel has written to."""
    return np.zeros(_num_words(array), dtype=np.uint8)


def _num_words(array: NDArray[Any]) -> int:
    return (array.nbytes + 3) // 4


Argument = Buffer | int | float | bool | np.integer[Any] | np.floating[Any]


@dataclass(frozen=True)
class KernelInfo:
    """Parameters as (PTX type, bytes), static shared memory in bytes, and the thread limit of __launch_bounds__."""

    parameters: tuple[tuple[str, int], ...]
    static_shared_bytes: int
    max_threads: int | None


@dataclass
class PtxModule:
    """A loaded module. Its `__device__` variables keep their values from launch to launch."""

    text: PtxText
    variables: tuple[Variable, ...]
    memory: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    _decoded: dict[str, DecodedKernel] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> Mapping[str, KernelInfo]:
        """The kernels of the module by name."""
        return {
            name: KernelInfo(
                tuple((parameter.type_name, parameter.size_bytes) for parameter in kernel.parameters),
                kernel.static_shared_bytes,
                kernel.max_threads,
            )
            for name, kernel in self._decoded.items()
        }

    def decoded(self, kernel: str) -> DecodedKernel:
        """The code of a kernel; raises KeyError if the module has no such kernel."""
        return self._decoded[kernel]

    @cached_property
    def variable_addresses(self) -> Mapping[str, int]:
        """Virtual addresses of the module's variables."""
        addresses, place = {}, layout.VARIABLE_WINDOW
        for variable in self.variables:
            addresses[variable.name] = place
            place += _align(variable.size_bytes, _ALIGNMENT) + _ALIGNMENT
        return addresses


def load_module(ptx: str) -> PtxModule:
    """Parse and decode PTX; raises UnsupportedPtx, naming instruction and line, for what is not modelled."""
    try:
        return _load(ptx)
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        # NVRTC writes well-formed PTX, but programs can contain any text as inline assembly.
        raise UnsupportedPtx(f"malformed PTX: {error!r}") from error


def _load(ptx: str) -> PtxModule:
    text = parse_ptx(ptx)
    used = _used_names(text)
    variables = tuple(v for v in text.variables if v.space in ("global", "const") and v.name in used)
    module = PtxModule(text, variables)
    for variable in variables:
        module.memory[variable.name] = _initial_contents(variable, module.variable_addresses)
    for name, function in text.functions.items():
        if function.is_entry:
            module._decoded[name] = decode_kernel(text, name, module.variable_addresses)
    return module


def launch(
    module: PtxModule,
    kernel: str,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Argument],
    *,
    dynamic_shared_bytes: int = 0,
    max_warp_steps: int = DEFAULT_MAX_WARP_STEPS,
    check_races: bool = True,
    block_stride: int = 1,
    shuffle: np.random.Generator | None = None,
) -> LaunchReport:
    """Run a kernel and report; writable buffers hold the results. With `block_stride` n, one block in n is run (counts
    and findings only); with -1 all blocks, from the last to the first; with `shuffle` all in an order made from it, the
    warps of each in turns of random order and length, or with a stride the last block and others at random. Raises
    ValueError if the arguments do not fit the kernel's parameters.
    """
    decoded = module.decoded(kernel)
    shape = LaunchShape(_three(grid), _three(block), dynamic_shared_bytes)
    problem = _launch_problem(decoded, shape)
    if problem is not None:
        refused = Finding("invalid_launch", f"the launch was refused: {problem}", 0, (0, 0, 0), (0, 0, 0))
        return LaunchReport(refused, Counts())
    launch_ = _Launch(module, decoded, shape, arguments, check_races=check_races, block_stride=block_stride)
    launch_.memory.launch[columns.LAUNCH_MAX_STEPS] = max_warp_steps
    if shuffle is not None:
        _shuffle(launch_.memory.launch, shape.blocks, shuffle)
        if block_stride > 1:
            launch_.memory.launch[columns.LAUNCH_FIRST] = shape.blocks - 1
    run_blocks(launch_.memory, *((0, shape.blocks) if block_stride > 0 else (shape.blocks - 1, -1)))
    launch_.copy_back()
    return launch_.report()


def _shuffle(numbers: NDArray[np.int64], num_blocks: int, generator: np.random.Generator) -> None:
    """Chooses the order of blocks and the seed of the warps' turns."""
    step = int(generator.integers(1, num_blocks + 1))
    while gcd(step, num_blocks) > 1:
        step += 1
    numbers[columns.LAUNCH_FIRST] = generator.integers(num_blocks)
    numbers[columns.LAUNCH_STEP] = step
    numbers[columns.LAUNCH_SEED] = generator.integers(1, 2**63 - 1)


def warm_up() -> None:
    """Compile the machine (a minute or two, once on a computer) or load it from Numba's cache (0.2 s)."""
    launch(load_module(".visible .entry empty()\n{ ret; }"), "empty", 1, 32, [])


@dataclass(frozen=True)
class LaunchShape:
    """Grid and block sizes and dynamic shared memory of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return (self.threads + 31) // 32

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def _three(size: int | Sequence[int]) -> tuple[int, int, int]:
    sizes = (size,) if isinstance(size, int | np.integer) else tuple(size)
    if not 1 <= len(sizes) <= 3:
        raise ValueError(f"a grid or block has one to three sizes, not {len(sizes)}")
    x, y, z = (*sizes, 1, 1)[:3]
    return int(x), int(y), int(z)


def _launch_problem(kernel: DecodedKernel, shape: LaunchShape) -> str | None:
    for name, sizes, limits in (("grid", shape.grid, MAX_GRID), ("block", shape.block, MAX_BLOCK)):
        for axis, size, limit in zip("xyz", sizes, limits, strict=True):
            if not 1 <= size <= limit:
                return f"{name}.{axis} is {size}, the limits are 1 and {limit}"
    if shape.threads > MAX_THREADS:
        return f"{shape.threads} threads in a block, the limit is {MAX_THREADS}"
    if kernel.max_threads and shape.threads > kernel.max_threads:
        return f"{shape.threads} threads in a block, the kernel's __launch_bounds__ allow {kernel.max_threads}"
    if kernel.static_shared_bytes > MAX_STATIC_SHARED_BYTES:
        return f"{kernel.static_shared_bytes} bytes of static shared memory, the limit is {MAX_STATIC_SHARED_BYTES}"
    shared = kernel.static_shared_bytes + shape.dynamic_shared_bytes
    if not shape.dynamic_shared_bytes >= 0 or shared > MAX_SHARED_BYTES:
        return f"{shared} bytes of shared memory, the limit is {MAX_SHARED_BYTES}"
    if kernel.local_bytes * shape.warps * 32 > MAX_LOCAL_BYTES:
        return f"{kernel.local_bytes} bytes of local memory in each thread are too many"
    return None


def _used_names(text: PtxText) -> set[str]:
    used = {name for function in text.functions.values() for name in named_symbols(function)}
    by_name = {variable.name: variable for variable in text.variables}
    pending = [name for name in used if name in by_name]
    while pending:
        for value in by_name[pending.pop()].initial:
            if isinstance(value, Symbol) and value.name in by_name and value.name not in used:
                used.add(value.name)
                pending.append(value.name)
    return used


def _initial_contents(variable: Variable, addresses: Mapping[str, int]) -> NDArray[np.uint8]:
    size = TYPE_BITS[variable.type_name] // 8
    contents = bytearray(variable.size_bytes)
    for index, value in enumerate(variable.initial):
        if isinstance(value, Immediate):
            number = value.value
        elif value.name in addresses:
            number = addresses[value.name] + value.offset
        else:
            raise UnsupportedPtx(f"the initial value of '{variable.name}' names '{value.name}'")
        if (index + 1) * size > len(contents):
            raise UnsupportedPtx(f"'{variable.name}' has more initial values than elements")
        contents[index * size : (index + 1) * size] = (number & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
    return np.frombuffer(contents, dtype=np.uint8).copy()


def _align(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


@dataclass
class _Placed:
    """A buffer or variable placed in the arena."""

    place: Place
    contents: NDArray[np.uint8]
    writable: bool
    written: NDArray[np.uint8] | None
    dependent: bool = False
    arena: int = 0

    @property
    def cells(self) -> slice:
        """Its words in the shadow memory."""
        return slice(self.arena // 4, (self.arena + len(self.contents) + 3) // 4)


class _Launch:
    """Memory and machine of one launch."""

    def __init__(
        self,
        module: PtxModule,
        kernel: DecodedKernel,
        shape: LaunchShape,
        arguments: Sequence[Argument],
        *,
        check_races: bool,
        block_stride: int,
    ) -> None:
        self._module, self._kernel, self._shape = module, kernel, shape
        self._placed = self._collect(arguments)
        self._shared_bytes = _align(kernel.dynamic_shared_offset + shape.dynamic_shared_bytes, _ALIGNMENT)
        self._layout_arena()
        self.memory = self._build(_parameter_block(kernel, arguments), check_races, block_stride)

    # -- memory ---------------------------------------------------------------------------------------------------
    def _collect(self, arguments: Sequence[Argument]) -> list[_Placed]:
        placed: list[_Placed] = []
        for index, argument in enumerate(arguments):
            if isinstance(argument, Buffer):
                place = Place(
                    argument.name, buffer_address(index, argument), argument.array.itemsize, argument.array.size
                )
                contents = argument.array.view(np.uint8)
                placed.append(_Placed(place, contents, argument.writable, argument.written, argument.dependent))
        for variable in self._module.variables:
            size = TYPE_BITS[variable.type_name] // 8
            address = self._module.variable_addresses[variable.name]
            place = Place(variable.name, address, size, variable.size_bytes // size)
            contents = self._module.memory[variable.name]
            placed.append(_Placed(place, contents, variable.space == "global", None))
        return sorted(placed, key=lambda item: not item.writable)

    def _layout_arena(self) -> None:
        end = self._shared_bytes
        self._writable_end = end
        for item in self._placed:
            item.arena = end + item.place.address % _ALIGNMENT
            end = _align(item.arena + len(item.contents), _ALIGNMENT)
            if item.writable:
                self._writable_end = end
        self._parameter_arena = end
        end = _align(end + self._kernel.parameter_bytes, _ALIGNMENT)
        self._local_arena = end
        self._arena_bytes = _align(end + self._kernel.local_bytes * self._shape.warps * 32, _ALIGNMENT) + _ALIGNMENT

    def _regions(self) -> NDArray[np.int64]:
        rows = [
            (layout.SHARED_WINDOW, self._shared_bytes, 0, layout.SPACE_SHARED, 0),
            (layout.LOCAL_WINDOW, self._kernel.local_bytes, self._local_arena, layout.SPACE_LOCAL, 0),
            (
                layout.PARAM_WINDOW,
                self._kernel.parameter_bytes,
                self._parameter_arena,
                layout.SPACE_PARAM,
                layout.FLAG_READ_ONLY,
            ),
        ]
        for item in self._placed:
            flags = (0 if item.writable else layout.FLAG_READ_ONLY) | (layout.FLAG_DEPENDENT if item.dependent else 0)
            rows.append((item.place.address, len(item.contents), item.arena, layout.SPACE_GLOBAL, flags))
        regions = np.zeros((len(rows), layout.NUM_REGION_COLUMNS), dtype=np.int64)
        for row, (start, size, arena, space, flags) in zip(regions, rows, strict=True):
            row[layout.REGION_START], row[layout.REGION_END] = start, start + size
            row[layout.REGION_ARENA], row[layout.REGION_SPACE], row[layout.REGION_FLAGS] = arena, space, flags
        return regions

    def _shared_valid(self) -> NDArray[np.uint8]:
        valid = np.zeros(self._shared_bytes + 1, dtype=np.uint8)
        for array in self._kernel.shared_arrays:
            valid[array.offset : array.offset + array.size_bytes] = 1
        dynamic = self._kernel.dynamic_shared_offset
        valid[dynamic : dynamic + self._shape.dynamic_shared_bytes] = 1
        return valid

    # -- machine --------------------------------------------------------------------------------------------------
    def _build(self, parameters: bytes, check_races: bool, block_stride: int) -> Memory:
        kernel, shape = self._kernel, self._shape
        arena = np.empty(self._arena_bytes // 8, dtype=np.uint64)
        data = arena.view(np.uint8)
        data[: self._shared_bytes] = 0xFF
        for item in self._placed:
            data[item.arena : item.arena + len(item.contents)] = item.contents
        data[self._parameter_arena : self._parameter_arena + len(parameters)] = np.frombuffer(parameters, np.uint8)
        data[self._local_arena :] = 0xFF
        words = self._register_file()
        cells = self._writable_end // 4 if check_races else 0
        marks = np.zeros((cells + 1, columns.NUM_CELL_MARKS), dtype=np.int32)
        if cells:
            marks[:, columns.CELL_INITIALISED_BYTES] = 15
            for item in self._placed:
                if item.writable and item.written is not None:
                    marks[item.cells, columns.CELL_INITIALISED_BYTES] = item.written
        numbers = np.zeros(columns.NUM_LAUNCH, dtype=np.int64)
        numbers[columns.LAUNCH_GRID_X : columns.LAUNCH_GRID_Z + 1] = shape.grid
        numbers[columns.LAUNCH_THREADS], numbers[columns.LAUNCH_WARPS] = shape.threads, shape.warps
        numbers[columns.LAUNCH_REGISTER_BYTES] = kernel.register_bytes
        numbers[columns.LAUNCH_CHECK] = check_races
        numbers[columns.LAUNCH_SHARED_BYTES] = self._shared_bytes
        numbers[columns.LAUNCH_LOCAL_BYTES] = kernel.local_bytes
        numbers[columns.LAUNCH_CELLS] = cells
        numbers[columns.LAUNCH_STRIDE], numbers[columns.LAUNCH_STEP] = block_stride, 1
        regions = self._regions()
        numbers[columns.LAUNCH_REGIONS] = len(regions)
        numbers[columns.LAUNCH_LOCAL_ARENA] = self._local_arena
        bulk_copies = (kernel.code[:, layout.COLUMN_KIND] == layout.KIND_BULK_COPY).any()
        copying_warps = shape.warps if (kernel.code[:, layout.COLUMN_KIND] == layout.KIND_COPY).any() else 0
        return Memory(
            code=kernel.code.copy(),
            words=words,
            longs=words.view(np.uint64),
            bytes1=data,
            bytes2=arena.view(np.uint16),
            bytes4=arena.view(np.uint32),
            bytes8=arena,
            floats=arena.view(np.float32),
            doubles=arena.view(np.float64),
            regions=regions,
            shared_valid=self._shared_valid(),
            read_stamps=np.zeros(self._arena_bytes // 32 + 1, dtype=np.int64),
            write_stamps=np.zeros(self._writable_end // 32 + 1, dtype=np.int64),
            bank_stamps=np.zeros(self._shared_bytes // 4 + 1, dtype=np.int64),
            cell_times=np.zeros((cells + 1, columns.NUM_TIMES), dtype=np.int64),
            cell_marks=marks,
            l1=np.zeros(columns.L1_SECTORS, dtype=np.int64),
            counters=np.zeros(layout.NUM_COUNTERS, dtype=np.int64),
            profile=np.zeros((len(kernel.code), layout.NUM_PROFILE), dtype=np.int64),
            found=np.zeros(layout.NUM_FOUND, dtype=np.int64),
            fronts=np.zeros((shape.warps, columns.MAX_FRONTS, columns.NUM_FRONT), dtype=np.int64),
            joins=np.zeros((shape.warps, columns.MAX_JOINS, columns.NUM_JOIN), dtype=np.int64),
            warps=np.zeros((shape.warps, columns.NUM_WARP), dtype=np.int64),
            seen=np.zeros((shape.warps, shape.warps), dtype=np.int64),
            copies=np.zeros((copying_warps, columns.MAX_PENDING_COPIES, columns.NUM_COPY), dtype=np.int64),
            copy_groups=np.zeros(shape.warps * columns.WARP_LANES, dtype=np.int64),
            bulk=np.zeros((columns.MAX_PENDING_BULK if bulk_copies else 1, columns.NUM_BULK), dtype=np.int64),
            local_stamps=np.zeros((self._arena_bytes - self._local_arena) // 4 + 1, dtype=np.int32),
            barriers=np.zeros((columns.NUM_BARRIERS, 2), dtype=np.int64),
            scratch=np.zeros(columns.NUM_SCRATCH, dtype=np.int64),
            launch=numbers,
        )

    def _register_file(self) -> NDArray[np.uint32]:
        kernel, shape = self._kernel, self._shape
        file = np.zeros(shape.warps * kernel.register_bytes // 8, dtype=np.uint64).view(np.uint32)
        per_warp = file.reshape(shape.warps, -1)
        for offset, lane_bytes, value in kernel.constants:
            if lane_bytes == 0:
                per_warp[:, offset // 4] = value
            elif lane_bytes == 4:
                per_warp[:, offset // 4 : offset // 4 + 32] = value
            else:
                per_warp[:, offset // 4 : offset // 4 + 64 : 2] = value & 0xFFFFFFFF
                per_warp[:, offset // 4 + 1 : offset // 4 + 65 : 2] = value >> 32
        for index, name in enumerate(layout.SPECIAL_REGISTERS):
            first = (layout.SPECIAL_OFFSET + 128 * index) // 4
            per_warp[:, first : first + 32] = self._special_value(name)
        return file

    def _special_value(self, name: str) -> NDArray[np.uint32]:
        shape = self._shape
        lanes = np.arange(32, dtype=np.uint64)
        threads = np.arange(shape.warps * 32).reshape(shape.warps, 32)
        width, height, _ = shape.block
        shared = self._kernel.static_shared_bytes + shape.dynamic_shared_bytes
        ones = np.uint64(1)
        values: dict[str, Any] = {
            "%tid.x": threads % width,
            "%tid.y": threads // width % height,
            "%tid.z": threads // (width * height),
            "%laneid": lanes,
            "%warpid": threads // 32,
            "%nwarpid": 64,
            "%smid": 0,
            "%nsmid": NUM_MULTIPROCESSORS,
            "%lanemask_eq": ones << lanes,
            "%lanemask_lt": (ones << lanes) - ones,
            "%lanemask_le": (ones << lanes + ones) - ones,
            "%lanemask_ge": ~((ones << lanes) - ones),
            "%lanemask_gt": ~((ones << lanes + ones) - ones),
            "%dynamic_smem_size": shape.dynamic_shared_bytes,
            "%total_smem_size": shared,
        }
        for axis, in_block, in_grid in zip("xyz", shape.block, shape.grid, strict=True):
            values[f"%ntid.{axis}"] = in_block
            values[f"%nctaid.{axis}"] = values[f"%nclusterid.{axis}"] = in_grid
            values[f"%cluster_nctaid.{axis}"] = 1
        values["%cluster_nctarank"] = 1
        value = np.asarray(values.get(name, 0)).astype(np.uint64) & np.uint64(0xFFFFFFFF)
        return np.broadcast_to(value.astype(np.uint32), (shape.warps, 32))

    # -- results --------------------------------------------------------------------------------------------------
    def copy_back(self) -> None:
        """Copy what the kernel may have written into the caller's arrays and the module's variables."""
        data, marks = self.memory.bytes1, self.memory.cell_marks
        is_shadowed = self.memory.launch[columns.LAUNCH_CELLS] > 0
        for item in self._placed:
            if item.writable:
                item.contents[:] = data[item.arena : item.arena + len(item.contents)]
                if item.written is not None and is_shadowed:
                    item.written[:] = marks[item.cells, columns.CELL_INITIALISED_BYTES]

    def report(self) -> LaunchReport:
        """Finding and counts of the finished launch."""
        places = [item.place for item in self._placed]
        finding = describe_finding(self.memory.found, self._kernel, places, self._shape.grid, self._shape.block)
        return LaunchReport(finding, self._counts())

    def _counts(self) -> Counts:
        c, profile = self.memory.counters.tolist(), self.memory.profile
        totals = profile.sum(axis=0).tolist()
        return Counts(
            blocks=c[layout.COUNT_BLOCKS],
            warp_instructions=totals[layout.PROFILE_INSTRUCTIONS],
            lane_instructions=totals[layout.PROFILE_LANES],
            global_load_requests=c[layout.COUNT_LOAD_REQUESTS],
            global_load_sectors=c[layout.COUNT_LOAD_SECTORS],
            l1_hit_sectors=c[layout.COUNT_L1_HITS],
            global_store_requests=c[layout.COUNT_STORE_REQUESTS],
            global_store_sectors=c[layout.COUNT_STORE_SECTORS],
            global_atomic_requests=c[layout.COUNT_ATOMIC_REQUESTS],
            global_atomic_sectors=c[layout.COUNT_ATOMIC_SECTORS],
            unique_sectors_read=c[layout.COUNT_UNIQUE_READ],
            unique_sectors_written=c[layout.COUNT_UNIQUE_WRITTEN],
            shared_requests=c[layout.COUNT_SHARED_REQUESTS],
            shared_wavefronts=c[layout.COUNT_SHARED_WAVEFRONTS],
            local_requests=c[layout.COUNT_LOCAL_REQUESTS],
            barriers=c[layout.COUNT_BARRIERS],
            divergent_branches=c[layout.COUNT_DIVERGENT_BRANCHES],
            longest_warp_instructions=c[layout.COUNT_LONGEST_INSTRUCTIONS],
            longest_warp_waits=c[layout.COUNT_LONGEST_WAITS],
            lines=self._line_counts(profile),
        )

    def _line_counts(self, profile: NDArray[np.int64]) -> tuple[LineCounts, ...]:
        lines, inverse = np.unique(self._kernel.code[:, layout.COLUMN_LINE], return_inverse=True)
        sums = np.zeros((len(lines), layout.NUM_PROFILE), dtype=np.int64)
        np.add.at(sums, inverse, profile)
        counted = [LineCounts(line, *row) for line, row in zip(lines.tolist(), sums.tolist(), strict=True)]
        return tuple(sorted(counted, key=lambda item: -item.warp_instructions))


def buffer_address(index: int, buffer: Buffer) -> int:
    """The device address that argument number `index` gets."""
    return layout.BUFFER_WINDOW + index * layout.BUFFER_STRIDE + buffer.offset_bytes


def _parameter_block(kernel: DecodedKernel, arguments: Sequence[Argument]) -> bytes:
    if len(arguments) != len(kernel.parameters):
        raise ValueError(f"kernel {kernel.name} takes {len(kernel.parameters)} arguments, {len(arguments)} were given")
    block = bytearray(kernel.parameter_bytes)
    for index, (argument, parameter, offset) in enumerate(
        zip(arguments, kernel.parameters, kernel.parameter_offsets, strict=True)
    ):
        block[offset : offset + parameter.size_bytes] = _parameter_bytes(kernel, index, argument, parameter)
    return bytes(block)


def _parameter_bytes(kernel: DecodedKernel, index: int, argument: Argument, parameter: Variable) -> bytes:
    kind, size = parameter.type_name, parameter.size_bytes
    if isinstance(argument, Buffer):
        if size != 8:
            raise ValueError(f"kernel {kernel.name}: argument {index} is a buffer, the parameter has type .{kind}")
        return buffer_address(index, argument).to_bytes(8, "little")
    if kind in ("f32", "f64"):
        return struct.pack("<f" if kind == "f32" else "<d", float(argument))
    if size != TYPE_BITS[kind] // 8 or int(argument) != argument:
        raise ValueError(
            f"kernel {kernel.name}: argument {index} ({argument!r}) does not fit a parameter of type .{kind}"
        )
    return (int(argument) & ((1 << (8 * size)) - 1)).to_bytes(size, "little")
