"""Numbers that the decoder and the machine share: instruction columns, kinds, address windows, state columns."""

from __future__ import annotations

# -- address space: every state space has its own far-apart range of 64-bit virtual addresses -------------------------
SHARED_WINDOW = 0x0100_0000_0000
LOCAL_WINDOW = 0x0200_0000_0000
PARAM_WINDOW = 0x0300_0000_0000
VARIABLE_WINDOW = 0x0400_0000_0000
BUFFER_WINDOW = 0x7000_0000_0000
BUFFER_STRIDE = 1 << 36
"""Distance between buffers in the virtual address space; a buffer takes at most half of it."""
WINDOW_BYTES = 1 << 32

# -- instruction kinds ----------------------------------------------------------------------------------------------
(
    KIND_OPERATION,
    KIND_BRANCH,
    KIND_RETURN,
    KIND_LOAD,
    KIND_STORE,
    KIND_ATOMIC,
    KIND_COLLECTIVE,
    KIND_BARRIER,
    KIND_FENCE,
    KIND_CLOCK,
    KIND_TRAP,
    KIND_NOTHING,
    KIND_ACTIVE_MASK,
    KIND_COPY,
    KIND_PHASE_BARRIER,
    KIND_WAIT_FOR_GRID,  # griddepcontrol.wait
    KIND_COMMIT_COPIES,  # cp.async.commit_group
    KIND_WAIT_FOR_COPIES,  # cp.async.wait_group, wait_all
    KIND_BULK_COPY,  # cp.async.bulk
    KIND_WAIT_FOR_BULK,  # cp.async.bulk.wait_group
) = range(20)

# -- instruction columns --------------------------------------------------------------------------------------------
(
    COLUMN_KIND,
    COLUMN_CODE,  # operation number, collective, atomic operator, barrier mode
    COLUMN_D0,
    COLUMN_D1,
    COLUMN_D2,
    COLUMN_D3,
    COLUMN_S0,
    COLUMN_S1,
    COLUMN_S2,
    COLUMN_S3,
    COLUMN_S4,
    COLUMN_GUARD,  # offset of the guard predicate, or -1
    COLUMN_GUARD_NEGATED,
    COLUMN_TARGET,
    COLUMN_JOIN,  # instruction at which the paths of a divergent branch meet, or -1
    COLUMN_WINDOW,  # added to addresses of the state space
    COLUMN_SIZE,  # bytes of one element
    COLUMN_COUNT,  # elements of a vector access
    COLUMN_SIGNED,
    COLUMN_WIDE,  # data registers are 64-bit rows
    COLUMN_ADDRESS_WIDE,  # the address register is a 64-bit row
    COLUMN_OFFSET,
    COLUMN_TYPE,  # atomic type
    COLUMN_STRONG,  # volatile, relaxed or ordered access: does not race with other strong accesses
    COLUMN_CONSTANT,  # load through the path for constant data (.nc): the compiler may move it past a wait
    COLUMN_WAITS,  # needs the result of an earlier load from device memory
    COLUMN_REGION,  # cache: the region that this instruction used last
    COLUMN_SPACE,
    COLUMN_LINE,
    COLUMN_REPLACES,  # atomic exchange whose old value nothing uses: it needs none
    NUM_COLUMNS,
) = range(31)

SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_CONST, SPACE_PARAM = range(6)

(
    COLLECTIVE_SHUFFLE_UP,
    COLLECTIVE_SHUFFLE_DOWN,
    COLLECTIVE_SHUFFLE_XOR,
    COLLECTIVE_SHUFFLE_INDEX,
    COLLECTIVE_VOTE_ANY,
    COLLECTIVE_VOTE_ALL,
    COLLECTIVE_VOTE_UNIFORM,
    COLLECTIVE_BALLOT,
    COLLECTIVE_MATCH_ANY,
    COLLECTIVE_MATCH_ALL,
    COLLECTIVE_REDUCE,
    COLLECTIVE_WARP_BARRIER,
    COLLECTIVE_ELECT,
    COLLECTIVE_MULTIPLY,  # one register of the result of mma
) = range(14)

(
    ATOMIC_ADD,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_EXCHANGE,
    ATOMIC_COMPARE,
    ATOMIC_INCREMENT,
    ATOMIC_DECREMENT,
) = range(10)
ALL_MEMBERS = 0xFFFFFFFF
ATOMIC_NAMES = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")

TYPE_S32, TYPE_U32, TYPE_S64, TYPE_U64, TYPE_F32, TYPE_F64, TYPE_B16, TYPE_F16, TYPE_BF16, TYPE_F16X2, TYPE_BF16X2 = (
    range(11)
)

BARRIER_SYNC, BARRIER_ARRIVE, BARRIER_POPC, BARRIER_AND, BARRIER_OR = range(5)
PHASE_INIT, PHASE_ARRIVE, PHASE_WAIT, PHASE_DROP, PHASE_PARITY, PHASE_BYTES = range(6)
# PHASE_PARITY waits for the phase of a parity, PHASE_BYTES expects bytes of bulk copies without arriving.

# -- regions of memory ----------------------------------------------------------------------------------------------
(
    REGION_START,  # virtual addresses [start, end)
    REGION_END,
    REGION_ARENA,  # offset in the arena
    REGION_SPACE,
    REGION_FLAGS,
    REGION_SHADOW,  # first shadow cell, or -1
    REGION_SECTOR,  # first sector stamp
    NUM_REGION_COLUMNS,
) = range(8)
FLAG_READ_ONLY, FLAG_UNINITIALISED, FLAG_DEPENDENT = 1, 2, 4
# FLAG_DEPENDENT: the kernels before may still be writing it; a lane may touch it after griddepcontrol.wait.

# -- special registers: one row each at the start of the register file of a warp --------------------------------------
SINK_OFFSET = 0
_AXES = ("x", "y", "z")
SPECIAL_REGISTERS = (
    *(f"%{name}.{axis}" for name in ("tid", "ctaid", "ntid", "nctaid") for axis in _AXES),
    *("%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid"),
    *(f"%lanemask_{relation}" for relation in ("eq", "lt", "le", "ge", "gt")),
    *("%dynamic_smem_size", "%total_smem_size"),
    *(f"%{name}.{axis}" for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid") for axis in _AXES),
    *("%cluster_ctarank", "%cluster_nctarank"),
)
"""The first six are %tid and %ctaid, in this order."""
SPECIAL_OFFSET = 256
CLOCK_REGISTERS = ("%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi")
FIRST_FREE_OFFSET = SPECIAL_OFFSET + 128 * len(SPECIAL_REGISTERS)

# -- findings ---------------------------------------------------------------------------------------------------------
FINDING_KINDS = (
    "none",
    "out_of_bounds",
    "misaligned",
    "race",
    "deadlock",
    "uninitialised_shared",
    "uninitialised_read",
    "step_limit",
    "trap",
    "write_to_read_only",
    "early_access",
    "uninitialised_local",
    "changing_constant",
    "endless",
)
(
    FINDING_NONE,
    FINDING_OUT_OF_BOUNDS,
    FINDING_MISALIGNED,
    FINDING_RACE,
    FINDING_DEADLOCK,
    FINDING_UNINITIALISED_SHARED,
    FINDING_UNINITIALISED_READ,
    FINDING_STEP_LIMIT,
    FINDING_TRAP,
    FINDING_READ_ONLY,
    FINDING_EARLY_ACCESS,
    FINDING_UNINITIALISED_LOCAL,
    FINDING_CHANGING_CONSTANT,
    FINDING_ENDLESS,
) = range(14)
(
    FOUND_KIND,
    FOUND_INSTRUCTION,
    FOUND_BLOCK,
    FOUND_THREAD,
    FOUND_ADDRESS,
    FOUND_SIZE,
    FOUND_ACCESS,
    FOUND_OTHER_BLOCK,
    FOUND_OTHER_THREAD,
    FOUND_OTHER_INSTRUCTION,
    FOUND_DETAIL,
    NUM_FOUND,
) = range(12)
ACCESS_READ, ACCESS_WRITE, ACCESS_ATOMIC = 1, 2, 3
DEADLOCK_COLLECTIVE, DEADLOCK_BARRIER, DEADLOCK_DIVERGENT_BARRIER, DEADLOCK_MEMBERS = range(4)

# -- counters ---------------------------------------------------------------------------------------------------------
(
    COUNT_STEPS,
    COUNT_LOAD_REQUESTS,
    COUNT_LOAD_SECTORS,
    COUNT_L1_HITS,
    COUNT_STORE_REQUESTS,
    COUNT_STORE_SECTORS,
    COUNT_ATOMIC_REQUESTS,
    COUNT_ATOMIC_SECTORS,
    COUNT_SHARED_REQUESTS,
    COUNT_SHARED_WAVEFRONTS,
    COUNT_LOCAL_REQUESTS,
    COUNT_BARRIERS,
    COUNT_DIVERGENT_BRANCHES,
    COUNT_UNIQUE_READ,
    COUNT_UNIQUE_WRITTEN,
    COUNT_BLOCKS,
    COUNT_LONGEST_INSTRUCTIONS,
    COUNT_LONGEST_WAITS,
    COUNT_FENCE_TIME,
    COUNT_BLOCK_START,
    COUNT_BLOCK,
    COUNT_FULL_BARRIER,
    COUNT_FENCE_BEFORE,
    COUNT_BULK,  # bulk copies that are pending in the block
    COUNT_CHANGES,  # instructions that may have changed memory
    COUNT_LOOKED_AT,  # of the last look at whether the block can go on: steps by then
    COUNT_LOOKED_CHANGES,  # ... changes by then
    COUNT_LOOKS,  # ... looks since anything was changed
    COUNT_KEPT_STATE,  # ... a hash of the block's state at one of them
    NUM_COUNTERS,
) = range(30)
PROFILE_INSTRUCTIONS, PROFILE_LANES, PROFILE_SECTORS, PROFILE_CONFLICTS, NUM_PROFILE = range(5)
