// Inputs and their float64 references, made on the device. Follows device_kernels.cu in one translation unit.

// Philox4x64-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011), as NumPy's Philox.
struct Four { u64 word[4]; };

__device__ __forceinline__ Four philox(u64 block, u64 stream, u64 key0, u64 key1) {
  Four c = {{block, stream, 0, 0}};
#pragma unroll
  for (int round = 0; round < 10; round++) {
    u64 high0 = __umul64hi(0xD2E7470EE14C6C93ull, c.word[0]), low0 = 0xD2E7470EE14C6C93ull * c.word[0];
    u64 high1 = __umul64hi(0xCA5A826395121157ull, c.word[2]), low1 = 0xCA5A826395121157ull * c.word[2];
    c = {{high1 ^ c.word[1] ^ key0, low1, high0 ^ c.word[3] ^ key1, low0}};
    key0 += 0x9E3779B97F4A7C15ull;
    key1 += 0xBB67AE8584CAA73Bull;
  }
  return c;
}

__device__ __forceinline__ double unit_of(u64 word) { return (word >> 11) * 1.1102230246251565e-16; }

// Number k of four random words, drawn as checking/draws.py draws it.
struct Uniform { __device__ double operator()(const Four& r, int k) const { return 2 * unit_of(r.word[k]) - 1; } };
struct Cancelling {
  __device__ double operator()(const Four& r, int k) const {
    double size = 0.5 + 0.5 * unit_of(r.word[k & 2]);
    return k & 1 ? -size : size;
  }
};
struct NearOne { __device__ double operator()(const Four& r, int k) const { return 1 + 1e-3 * (2 * unit_of(r.word[k]) - 1); } };
// Decades each way from 1: WIDE_DECADES.
template <typename T> struct Decades { static constexpr double number = 6; };
template <> struct Decades<Half> { static constexpr double number = 2; };
template <typename T>
struct WideRange {
  __device__ double operator()(const Four& r, int k) const {
    double size = exp10(2 * Decades<T>::number * unit_of(r.word[k]) - Decades<T>::number);
    return r.word[k] & 1 ? -size : size;
  }
};
struct Integers { __device__ double operator()(const Four& r, int k) const { return 1.0 + (double)__umul64hi(r.word[k], 3); } };

template <typename T, typename Kind>
__device__ __forceinline__ void fill(T* numbers, u64 length, u64 stream, u64 key0, u64 key1, Kind kind) {
  for (u64 block = first_thread(); 4 * block < length; block += num_threads()) {
    Four random = philox(block + 1, stream, key0, key1);
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (4 * block + k < length) numbers[4 * block + k] = rounded<T>(kind(random, k));
  }
}

// dense: [num_cols, num_dense_cols], zero at the start; each dense column picks out one column that has a nonzero.
template <typename T>
__device__ __forceinline__ void pick(T* dense, const int* col_indices, u64 nnz, u64 num_dense_cols, u64 stream, u64 key0, u64 key1) {
  for (u64 c = first_thread(); c < num_dense_cols; c += num_threads()) {
    Four random = philox(c + 1, stream, key0, key1);
    u64 hot = col_indices[__umul64hi(random.word[0], nnz)];
    dense[hot * num_dense_cols + c] = rounded<T>(1 + unit_of(random.word[1]));
  }
}

// A draw that mixes kinds, from a uniform one: columns of x of five sizes, so that a number of few bits shows where its
// column is small and a tiny one where it is large, and rows of four kinds (see checking/draws.py). Nothing that looks at
// some of them tells which kind it is.
struct Sizes {
  u64 stream, key0, key1;
  double smallest, largest;
  __device__ double of_column(u64 column) const {
    u64 chosen = philox(column + 1, stream, key0, key1).word[0] >> 61;
    return chosen < 4 ? 1.0 : chosen == 4 ? 1.0 / 128 : chosen == 5 ? 1.0 / 16384 : chosen == 6 ? smallest : largest;
  }
};
template <typename T>
__device__ __forceinline__ void mix_columns(T* dense, u64 num_cols, u64 num_dense_cols, const Sizes& sizes) {
  for (u64 column = first_thread(); column < num_cols; column += num_threads()) {
    double size = sizes.of_column(column);
    for (u64 k = 0; k < num_dense_cols; k++) {
      T* number = dense + column * num_dense_cols + k;
      *number = rounded<T>(widened(*number) * size);
    }
  }
}
// A warp a row, behind `mix_columns`, whose sizes are given; rows have the next stream. tiny: what is left of all but one value.
// Of eight rows two are evened out, with products of one sign in one dense column, one has one product, and in one that
// one outweighs all but the largest columns.
template <typename T>
__device__ __forceinline__ void mix_rows(const int* row_offsets, const int* col_indices, T* values, const T* dense,
                                         u64 num_rows, u64 num_dense_cols, const Sizes& sizes, double tiny) {
  for (u64 row = first_thread() >> 5; row < num_rows; row += num_threads() >> 5) {
    Four random = philox(row + 1, sizes.stream + 1, sizes.key0, sizes.key1);
    u64 kind = random.word[0] >> 61, begin = row_offsets[row], end = row_offsets[row + 1];
    u64 kept = begin + __umul64hi(random.word[1], end - begin), met = __umul64hi(random.word[2], num_dense_cols);
    for (u64 j = begin + (threadIdx.x & 31); j < end; j += 32) {
      u64 column = col_indices[j];
      double value = widened(values[j]), size = sizes.of_column(column);
      if (kind < 2) {
        value = copysign(value, widened(dense[column * num_dense_cols + met])) * sizes.smallest / size;
      } else {
        bool is_light = kind < 4 && j != kept;
        if (kind < 4) value = is_light ? value * tiny : 0.5 * value + copysign(0.5, value);
        if (kind != 3 || !is_light) value /= fmax(size, 1.0);
      }
      values[j] = rounded<T>(value);
    }
  }
}

// What is accepted of a sum of products, see sums.py: `size` is |A| |x|, `largest` the largest product in it. Types that
// are summed in a wider one may lose more when the sum is stored: `stored` their unit roundoff, `half_step` half the
// step of their subnormal numbers; 0 of the others.
struct Accuracy {
  double tolerance, long_row, roundoff, single, stored, half_step;
  __device__ double of_sum(double size, double largest, u64 length) const {
    if (size - largest <= roundoff * size) return single * size;
    return size * tolerance * sqrt(fmax(1.0, length / long_row));
  }
  __device__ double bound(double sum, double size, double largest, u64 length) const {
    double within = of_sum(size, largest, length);
    return within > 0 ? within + fmax(stored * (fabs(sum) + within), half_step) : within;
  }
};

// The product and |A| |x| in float64, and the error bound.
// A warp takes a row and `width` (a power of two up to 32) dense columns at a time; its lanes share the nonzeros and add
// up in a fixed order. No atomics: equal inputs give equal bits.
template <typename T>
__device__ __forceinline__ void refer(const int* row_offsets, const int* col_indices, const T* values, const T* dense,
                                      double* reference, double* magnitude, double* bound, u64 num_rows,
                                      u64 num_dense_cols, u64 width, Accuracy accuracy) {
  int lane = threadIdx.x & 31, column_lane = lane & (int)(width - 1), first = lane / (int)width, step = 32 / (int)width;
  u64 tiles = (num_dense_cols + width - 1) / width;
  for (u64 task = first_thread() >> 5; task < num_rows * tiles; task += num_threads() >> 5) {
    u64 row = task / tiles, column = task % tiles * width + column_lane;
    int begin = row_offsets[row], end = row_offsets[row + 1];
    double sum = 0, size = 0, largest = 0;
    if (column < num_dense_cols) {
#pragma unroll 4
      for (int j = begin + first; j < end; j += step) {
        double product = widened(values[j]) * widened(dense[(u64)col_indices[j] * num_dense_cols + column]);
        sum += product;
        size += fabs(product);
        largest = fmax(largest, fabs(product));
      }
    }
    for (int offset = 16; offset >= (int)width; offset >>= 1) {
      sum += __shfl_xor_sync(0xffffffffu, sum, offset);
      size += __shfl_xor_sync(0xffffffffu, size, offset);
      largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
    }
    if (first == 0 && column < num_dense_cols) {
      u64 place = row * num_dense_cols + column;
      reference[place] = sum;
      magnitude[place] = size;
      bound[place] = accuracy.bound(sum, size, largest, end - begin);
    }
  }
}

#define FILL(NAME, KIND, TYPE, T)                                                                                  \
  extern "C" __global__ void __launch_bounds__(256) fill_##NAME##_##TYPE(T* numbers, u64 length, u64 stream, u64 key0, \
                                                                         u64 key1) {                               \
    fill(numbers, length, stream, key0, key1, KIND());                                                             \
  }
#define FOR_TYPE(TYPE, T)                                                                                          \
  FILL(uniform, Uniform, TYPE, T)                                                                                  \
  FILL(cancelling, Cancelling, TYPE, T)                                                                            \
  FILL(near_one, NearOne, TYPE, T)                                                                                 \
  FILL(wide_range, WideRange<T>, TYPE, T)                                                                           \
  FILL(integers, Integers, TYPE, T)                                                                                \
  extern "C" __global__ void __launch_bounds__(256) pick_##TYPE(T* dense, const int* col_indices, u64 nnz,          \
                                                                u64 num_dense_cols, u64 stream, u64 key0, u64 key1) { \
    pick(dense, col_indices, nnz, num_dense_cols, stream, key0, key1);                                             \
  }                                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) mix_columns_##TYPE(T* dense, u64 num_cols, u64 num_dense_cols,  \
                                                                       u64 stream, u64 key0, u64 key1,             \
                                                                       double smallest, double largest) {           \
    mix_columns(dense, num_cols, num_dense_cols, Sizes{stream, key0, key1, smallest, largest});                    \
  }                                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) mix_rows_##TYPE(const int* row_offsets, const int* col_indices, \
                                                                    T* values, const T* dense, u64 num_rows,        \
                                                                    u64 num_dense_cols, u64 stream, u64 key0,       \
                                                                    u64 key1, double smallest, double largest,      \
                                                                    double tiny) {                                  \
    mix_rows(row_offsets, col_indices, values, dense, num_rows, num_dense_cols,                                    \
             Sizes{stream, key0, key1, smallest, largest}, tiny);                                                  \
  }                                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) refer_##TYPE(                                                  \
      const int* row_offsets, const int* col_indices, const T* values, const T* dense, double* reference,          \
      double* magnitude, double* bound, u64 num_rows, u64 num_dense_cols, u64 width, double tolerance,             \
      double long_row, double roundoff, double single, double stored, double half_step) {                          \
    refer(row_offsets, col_indices, values, dense, reference, magnitude, bound, num_rows, num_dense_cols, width,    \
          Accuracy{tolerance, long_row, roundoff, single, stored, half_step});                                     \
  }                                                                                                                \
  extern "C" __global__ void __launch_bounds__(256) scale_##TYPE(T* numbers, u64 length, double factor) {           \
    for (u64 i = first_thread(); i < length; i += num_threads()) numbers[i] = rounded<T>(widened(numbers[i]) * factor);      \
  }
FOR_TYPE(float32, float)
FOR_TYPE(float64, double)
FOR_TYPE(float16, Half)
FOR_TYPE(bfloat16, Bfloat16)

// A result as it is judged: CuPy's own kernels take a subnormal number of float32 for zero, and do not know bfloat16.
#define WIDEN(TYPE, T)                                                                                                  \
  extern "C" __global__ void __launch_bounds__(256) widen_##TYPE(const T* numbers, double* wide, u64 length) {           \
    for (u64 i = first_thread(); i < length; i += num_threads()) wide[i] = widened(numbers[i]);                         \
  }
// And what is right as a program may leave it.
#define NARROW(TYPE, T)                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) narrow_##TYPE(const double* wide, T* numbers, u64 length) {          \
    for (u64 i = first_thread(); i < length; i += num_threads()) numbers[i] = rounded<T>(wide[i]);                               \
  }
WIDEN(float32, float)
WIDEN(float16, Half)
WIDEN(bfloat16, Bfloat16)
NARROW(float32, float)
NARROW(float16, Half)
NARROW(bfloat16, Bfloat16)
