// Storage formats from a CSR matrix on the device. Blocks have 256 threads; grids are rounded up.
// Sums that tell where things lie are whole numbers: the order of atomics does not show.

#define FULL 0xffffffffu
#define NONE 0x7fffffff
constexpr int CHUNK = 1024;
constexpr int DIGITS = 16;

__device__ int thread_number() { return blockIdx.x * 256 + threadIdx.x; }

__device__ int least_of_warp(int number) {
  for (int step = 16; step > 0; step /= 2) number = min(number, __shfl_xor_sync(FULL, number, step));
  return number;
}

__device__ int most_of_warp(int number) {
  for (int step = 16; step > 0; step /= 2) number = max(number, __shfl_xor_sync(FULL, number, step));
  return number;
}

// 0, 1, 2, ...
extern "C" __global__ void count_up(int* numbers, int length) {
  int i = thread_number();
  if (i < length) numbers[i] = i;
}

// Exclusive sums within blocks, and the sum of each block.
extern "C" __global__ void scan_blocks(const int* numbers, int length, int* sums, int* block_sums) {
  __shared__ int shared[256];
  int i = thread_number(), own = i < length ? numbers[i] : 0;
  shared[threadIdx.x] = own;
  __syncthreads();
  for (int step = 1; step < 256; step *= 2) {
    int before = threadIdx.x >= step ? shared[threadIdx.x - step] : 0;
    __syncthreads();
    shared[threadIdx.x] += before;
    __syncthreads();
  }
  if (i < length) sums[i] = shared[threadIdx.x] - own;
  if (threadIdx.x == 255) block_sums[blockIdx.x] = shared[255];
}

extern "C" __global__ void add_block_sums(int* sums, int length, const int* block_sums) {
  int i = thread_number();
  if (i < length) sums[i] += block_sums[blockIdx.x];
}

extern "C" __global__ void find_longest(const int* row_offsets, int num_rows, int* longest) {
  int row = thread_number();
  int length = most_of_warp(row < num_rows ? row_offsets[row + 1] - row_offsets[row] : 0);
  if (threadIdx.x % 32 == 0) atomicMax(longest, length);
}

// Stable sorting by 4 bits of the keys at a time: how often each digit stands in each chunk, digit by digit.
extern "C" __global__ void count_digits(const int* keys, const int* order, int length, int shift, int num_chunks, int* counts) {
  int chunk = thread_number() / 32, lane = threadIdx.x % 32, own = 0;
  if (chunk >= num_chunks) return;
  for (int first = chunk * CHUNK; first < min(length, (chunk + 1) * CHUNK); first += 32) {
    int digit = first + lane < length ? keys[order[first + lane]] >> shift & (DIGITS - 1) : -1;
    for (int d = 0; d < DIGITS; d++) {
      unsigned holders = __ballot_sync(FULL, digit == d);
      if (lane == d) own += __popc(holders);
    }
  }
  if (lane < DIGITS) counts[lane * num_chunks + chunk] = own;
}

// Puts each element behind those of lesser digits and those of its own before it. starts: exclusive sums of the counts.
extern "C" __global__ void place_by_digit(const int* keys, const int* order, int length, int shift, int num_chunks, const int* starts, int* placed) {
  int chunk = thread_number() / 32, lane = threadIdx.x % 32;
  if (chunk >= num_chunks) return;
  int next = lane < DIGITS ? starts[lane * num_chunks + chunk] : 0;
  for (int first = chunk * CHUNK; first < min(length, (chunk + 1) * CHUNK); first += 32) {
    int element = first + lane < length ? order[first + lane] : -1;
    int digit = element < 0 ? -1 : keys[element] >> shift & (DIGITS - 1);
    for (int d = 0; d < DIGITS; d++) {
      unsigned holders = __ballot_sync(FULL, digit == d);
      int start = __shfl_sync(FULL, next, d);
      if (digit == d) placed[start + __popc(holders & (1u << lane) - 1)] = element;
      if (lane == d) next += __popc(holders);
    }
  }
}

// Bin of each row, the widest bin first; rows and longest row of each bin. limits: ascending.
extern "C" __global__ void bin_rows(const int* row_offsets, int num_rows, const int* limits, int num_limits, int* keys, int* counts, int* widths) {
  __shared__ int block_counts[DIGITS], block_widths[DIGITS];
  if (threadIdx.x < DIGITS) block_counts[threadIdx.x] = block_widths[threadIdx.x] = 0;
  __syncthreads();
  int row = thread_number();
  if (row < num_rows) {
    int length = row_offsets[row + 1] - row_offsets[row], bin = 0;
    while (bin < num_limits - 1 && limits[bin] < length) bin++;
    keys[row] = num_limits - 1 - bin;
    atomicAdd(block_counts + num_limits - 1 - bin, 1);
    atomicMax(block_widths + num_limits - 1 - bin, length);
  }
  __syncthreads();
  if (threadIdx.x < num_limits) {
    atomicAdd(counts + threadIdx.x, block_counts[threadIdx.x]);
    atomicMax(widths + threadIdx.x, block_widths[threadIdx.x]);
  }
}

// A warp of the format each. table: for each bin first warp, lanes, steps, first place, first slot, its first row in
// `sorted`, its rows and its first byte of high bits; behind the last the warp past all. mode: 0 columns of 32 bits, 1 of
// 16 from the warp's smallest, else the bits above 16. reach: the largest offset, or column, that was stored.
extern "C" __global__ void fill_row_bins(const int* row_offsets, const int* col_indices, const int* sorted, const int* table, int num_warps, int mode, int* permutation, int* bases, int* wide_columns, unsigned short* narrow_columns, unsigned char* high_bits, int* sources, int* reach) {
  int warp = thread_number() / 32, lane = threadIdx.x % 32;
  if (warp >= num_warps) return;
  const int* bin = table;
  while (warp >= bin[8]) bin += 8;
  int own = warp - bin[0], lanes = bin[1], steps = bin[2];
  int place = (own * 32 + lane) / lanes, thread = (own * 32 + lane) % lanes;
  int row = place < bin[6] ? sorted[bin[5] + place] : -1;
  if (thread == 0) permutation[bin[3] + place] = row;
  int first = row < 0 ? 0 : row_offsets[row], past = row < 0 ? 0 : row_offsets[row + 1];
  int last = past > first ? col_indices[past - 1] : 0;
  int smallest = least_of_warp(past > first ? col_indices[first] : NONE);
  if (smallest == NONE) smallest = 0;
  int largest = most_of_warp(last);
  if (lane == 0) {
    bases[warp] = smallest;
    if (mode) atomicMax(reach, mode == 1 ? largest - smallest : largest);
  }
  if (past == first) last = smallest;
  int slot = bin[4] + own * steps * 32 + lane, slots_a_byte = mode > 1 ? 8 / mode : 1, bits = 0;
  int byte = bin[7] + own * ((steps + slots_a_byte - 1) / slots_a_byte) * 32 + lane;
  for (int k = 0; k < steps; k++, slot += 32) {
    long long nonzero = first + thread + (long long)k * lanes;
    int column = nonzero < past ? col_indices[nonzero] : last;
    sources[slot] = nonzero < past ? (int)nonzero : -1;
    if (mode == 0) {
      wide_columns[slot] = column;
    } else {
      narrow_columns[slot] = mode == 1 ? column - smallest : column;
    }
    if (mode > 1) {
      bits |= (column >> 16 & (1 << mode) - 1) << k % slots_a_byte * mode;
      if (k % slots_a_byte == slots_a_byte - 1 || k == steps - 1) {
        high_bits[byte] = bits;
        byte += 32;
        bits = 0;
      }
    }
  }
}

extern "C" __global__ void fill_ell(const int* row_offsets, const int* col_indices, int num_rows, int width, int stride, int* columns, int* sources) {
  int row = thread_number();
  if (row >= stride) return;
  int first = row < num_rows ? row_offsets[row] : 0, past = row < num_rows ? row_offsets[row + 1] : 0;
  int last = past > first ? col_indices[past - 1] : 0;
  for (int k = 0; k < width; k++) {
    columns[k * stride + row] = k < past - first ? col_indices[first + k] : last;
    sources[k * stride + row] = k < past - first ? first + k : -1;
  }
}

// Windows of rows in order, within one the longest first.
extern "C" __global__ void key_by_length(const int* row_offsets, int num_rows, int sigma, int longest, int* keys) {
  int row = thread_number();
  if (row < num_rows) keys[row] = row / sigma * (longest + 1) + longest - (row_offsets[row + 1] - row_offsets[row]);
}

// Slots, smallest column and the reach of the columns of each slice; all slots together as two 32-bit halves.
extern "C" __global__ void measure_slices(const int* row_offsets, const int* col_indices, const int* sorted, int num_rows, int slice, int num_slices, int* sizes, int* bases, int* reach, unsigned long long* total) {
  int number = thread_number();
  if (number >= num_slices) return;
  int width = 0, smallest = NONE, largest = 0;
  for (int place = number * slice; place < min(num_rows, (number + 1) * slice); place++) {
    int first = row_offsets[sorted[place]], past = row_offsets[sorted[place] + 1];
    if (first == past) continue;
    width = max(width, past - first);
    smallest = min(smallest, col_indices[first]);
    largest = max(largest, col_indices[past - 1]);
  }
  if (smallest == NONE) smallest = 0;
  sizes[number] = width * slice;
  bases[number] = smallest;
  atomicMax(reach, max(0, largest - smallest));
  atomicAdd(total, (unsigned long long)width * slice);
}

// A lane of a slice each. columns are of 16 bits from the slice's smallest where `narrow`.
extern "C" __global__ void fill_sell(const int* row_offsets, const int* col_indices, const int* sorted, int num_rows, int slice, int num_lanes, const int* slice_offsets, const int* bases, int narrow, int* permutation, int* wide_columns, unsigned short* narrow_columns, int* sources) {
  int lane = thread_number();
  if (lane >= num_lanes) return;
  int number = lane / slice, row = lane < num_rows ? sorted[lane] : -1;
  permutation[lane] = row;
  int first = row < 0 ? 0 : row_offsets[row], past = row < 0 ? 0 : row_offsets[row + 1], base = bases[number];
  int last = past > first ? col_indices[past - 1] : base;
  for (int slot = slice_offsets[number] + lane % slice; slot < slice_offsets[number + 1]; slot += slice, first++) {
    int column = first < past ? col_indices[first] : last;
    sources[slot] = first < past ? first : -1;
    if (narrow) {
      narrow_columns[slot] = column - base;
    } else {
      wide_columns[slot] = column;
    }
  }
}

// A warp a tile: its smallest and largest column, 0 where it is empty.
extern "C" __global__ void measure_tiles(const int* col_indices, const int* starts, const int* counts, int num_tiles, int* smallest, int* largest, int* reach) {
  int tile = thread_number() / 32, lane = threadIdx.x % 32;
  if (tile >= num_tiles) return;
  int least = NONE, most = 0;
  for (int q = lane; q < counts[tile]; q += 32) {
    least = min(least, col_indices[starts[tile] + q]);
    most = max(most, col_indices[starts[tile] + q]);
  }
  least = least_of_warp(least), most = most_of_warp(most);
  if (lane > 0) return;
  smallest[tile] = least == NONE ? 0 : least;
  largest[tile] = most;
  atomicMax(reach, least == NONE ? 0 : most - least);
}

// A slot each: which nonzero of its tile it holds follows from its place.
extern "C" __global__ void fill_tiles(const int* col_indices, const int* starts, const int* counts, const int* smallest, const int* largest, int num_slots, int capacity, int vector, int narrow, int* wide_columns, unsigned short* narrow_columns, int* sources) {
  int slot = thread_number();
  if (slot >= num_slots) return;
  int tile = slot / capacity, place = slot % capacity;
  int q = (place / vector / 32 * vector + place % vector) * 32 + place / vector % 32;
  int nonzero = q < counts[tile] ? starts[tile] + q : -1;
  int column = nonzero < 0 ? largest[tile] : col_indices[nonzero];
  sources[slot] = nonzero;
  if (narrow) {
    narrow_columns[slot] = column - smallest[tile];
  } else {
    wide_columns[slot] = column;
  }
}

// Where each row of a tile begins within it, the end repeated behind the last.
extern "C" __global__ void bound_tiles(const int* row_offsets, const int* first_rows, const int* end_rows, const int* starts, const int* counts, int num_bounds, int bounds_a_tile, unsigned short* local_offsets) {
  int i = thread_number();
  if (i >= num_bounds) return;
  int tile = i / bounds_a_tile;
  long long row = min((long long)first_rows[tile] + i % bounds_a_tile, (long long)end_rows[tile]);
  local_offsets[i] = max(0, min(counts[tile], row_offsets[row] - starts[tile]));
}

extern "C" __global__ void set_all(int* numbers, int length, int number) {
  int i = thread_number();
  if (i < length) numbers[i] = number;
}

// A warp a row: which diagonals, counted from the lower left, have a nonzero.
extern "C" __global__ void mark_diagonals(const int* row_offsets, const int* col_indices, int num_rows, int* in_use) {
  int row = thread_number() / 32;
  if (row >= num_rows) return;
  for (int j = row_offsets[row] + threadIdx.x % 32; j < row_offsets[row + 1]; j += 32) atomicMax(in_use + col_indices[j] - row + num_rows - 1, 1);
}

extern "C" __global__ void list_diagonals(const int* in_use, const int* ranks, int num_places, int num_rows, int* offsets) {
  int i = thread_number();
  if (i < num_places && in_use[i]) offsets[ranks[i]] = i - (num_rows - 1);
}

// A warp a row. slice: 0 where whole diagonals lie one after another.
extern "C" __global__ void fill_dia(const int* row_offsets, const int* col_indices, const int* ranks, int num_rows, int num_diagonals, int slice, int* sources) {
  int row = thread_number() / 32;
  if (row >= num_rows) return;
  for (int j = row_offsets[row] + threadIdx.x % 32; j < row_offsets[row + 1]; j += 32) {
    int rank = ranks[col_indices[j] - row + num_rows - 1];
    sources[slice ? (row / slice * num_diagonals + rank) * slice + row % slice : rank * num_rows + row] = j;
  }
}

// A warp a row: the block of each nonzero, counted row by row of blocks, and its row.
extern "C" __global__ void key_by_block(const int* row_offsets, const int* col_indices, int num_rows, int block_rows, int block_cols, int num_block_cols, int* keys, int* rows) {
  int row = thread_number() / 32;
  if (row >= num_rows) return;
  for (int j = row_offsets[row] + threadIdx.x % 32; j < row_offsets[row + 1]; j += 32) {
    keys[j] = row / block_rows * num_block_cols + col_indices[j] / block_cols;
    rows[j] = row;
  }
}

// Which elements in order are the first of their key.
extern "C" __global__ void mark_first(const int* keys, const int* order, int length, int* is_first) {
  int i = thread_number();
  if (i < length) is_first[i] = i == 0 || keys[order[i]] != keys[order[i - 1]];
}

// Puts each nonzero into its block. before: firsts before each.
extern "C" __global__ void fill_blocks(const int* keys, const int* order, const int* is_first, const int* before, int nnz, const int* rows, const int* col_indices, int block_rows, int block_cols, int num_block_cols, int* counts, int* block_col_indices, int* sources) {
  int i = thread_number();
  if (i >= nnz) return;
  int nonzero = order[i], key = keys[nonzero], block = before[i] + is_first[i] - 1;
  if (is_first[i]) {
    block_col_indices[block] = key % num_block_cols;
    atomicAdd(counts + key / num_block_cols, 1);
  }
  sources[(block * block_rows + rows[nonzero] % block_rows) * block_cols + col_indices[nonzero] % block_cols] = nonzero;
}

// Elements of the blocks in the slots of slices, `vector` of a block side by side, lane by lane.
extern "C" __global__ void fill_planes(const int* of_blocks, const int* block_of_slot, int num_elements, int size, int slice, int vector, int* sources) {
  int i = thread_number();
  if (i >= num_elements) return;
  int within = i % (slice * size), lane = within / vector % slice, element = within / vector / slice * vector + within % vector;
  int block = block_of_slot[i / (slice * size) * slice + lane];
  sources[i] = block < 0 ? -1 : of_blocks[block * size + element];
}
