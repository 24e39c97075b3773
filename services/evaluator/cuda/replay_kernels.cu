// Replays with one entry changed: the change, what it does to the reference, and whether a result is right. Follows
// draw_kernels.cu in one translation unit.

// A in CSR order with the dense operand and |A| |x| of a draw, as it was drawn; every kernel of a replay sees the same.
template <typename T>
struct Drawn {
  const int *row_offsets, *col_indices;
  const T *values, *dense;
  const double* magnitude;
  u64 num_rows, nnz, num_dense_cols;
};

// Where an entry is changed, and how: it changes its sign and becomes `stretch` times as large, or `shown` if that is more.
struct Change {
  u64 nonzero, row, column, dense_column;
  double stretch, shown;
  __device__ double value(double before) const {
    double now = fmax(fabs(before) * stretch, shown);
    return before < 0 ? now : -now;
  }
};

// By how many error bounds a change moves a result.
#define CLEARLY 16.0
// An entry of the dense operand does not grow more than this to be seen in one row: it would hide all else in others.
// Neither becomes a value larger than that to be seen: products of it with others are to be numbers of the type.
template <typename T> struct Most { static constexpr double growth = 16384, value = 1e30, result = 1e300; };
template <> struct Most<Half> { static constexpr double growth = 1024, value = 2048, result = 65504; };

// The last row that begins at or before a nonzero.
__device__ __forceinline__ u64 row_of(const int* row_offsets, u64 num_rows, u64 nonzero) {
  u64 low = 0, high = num_rows;
  while (high - low > 1) {
    u64 middle = (low + high) / 2;
    if ((u64)row_offsets[middle] <= nonzero) low = middle; else high = middle;
  }
  return low;
}

// Change `number` under a key: of a nonzero drawn evenly, so that work left out is hit as often as it is large; its value
// in A or the entry of the dense operand that it meets. It never becomes much smaller: differences would lose precision.
template <typename T>
__device__ __forceinline__ Change change_of(const Drawn<T>& drawn, bool of_values, u64 number, u64 key0, u64 key1,
                                            const Accuracy& accuracy) {
  Four random = philox(number + 1, 0, key0, key1);
  Change made;
  made.nonzero = __umul64hi(random.word[0], drawn.nnz);
  made.row = row_of(drawn.row_offsets, drawn.num_rows, made.nonzero);
  made.column = drawn.col_indices[made.nonzero];
  made.dense_column = __umul64hi(random.word[1], drawn.num_dense_cols);
  made.stretch = 0.75 + unit_of(random.word[2]);
  double in_matrix = widened(drawn.values[made.nonzero]);
  double in_dense = widened(drawn.dense[made.column * drawn.num_dense_cols + made.dense_column]);
  double size = drawn.magnitude[made.row * drawn.num_dense_cols + made.dense_column];
  u64 length = drawn.row_offsets[made.row + 1] - drawn.row_offsets[made.row];
  double other = fabs(of_values ? in_dense : in_matrix);
  double shown = CLEARLY * accuracy.bound(size, size, 0, length) / fmax(other, 1e-30);
  made.shown = of_values ? fmin(shown, Most<T>::value) : shown <= Most<T>::growth * fabs(in_dense) ? shown : 0;
  return made;
}

// Makes the change: in `values`, at the slots whose source is the nonzero (sources 0: CSR order), or in `dense`. Late: the
// next kernel may start at once, the change comes after so many nanoseconds.
template <typename T>
__device__ __forceinline__ void change(const Drawn<T>& drawn, const int* sources, u64 num_slots, T* values, T* dense,
                                       bool of_values, u64 number, u64 key0, u64 key1, const Accuracy& accuracy,
                                       u64 late_nanoseconds) {
  if (late_nanoseconds) {
    let_the_next_start();
    linger(late_nanoseconds);
  }
  Change made = change_of(drawn, of_values, number, key0, key1, accuracy);
  if (of_values && sources) {
    for (u64 slot = first_thread(); slot < num_slots; slot += num_threads())
      if (sources[slot] == (int)made.nonzero) values[slot] = rounded<T>(made.value(widened(values[slot])));
  } else if (first_thread() == 0) {
    T* changed = of_values ? values + made.nonzero : dense + made.column * drawn.num_dense_cols + made.dense_column;
    *changed = rounded<T>(made.value(widened(*changed)));
  }
}

// What the change does to reference, magnitude and bound. `values` and `dense` as they are before it.
template <typename T>
__device__ __forceinline__ void account(const Drawn<T>& drawn, const T* values, const T* dense, double* reference,
                                        double* magnitude, double* bound, bool of_values, u64 number, u64 key0, u64 key1,
                                        const Accuracy& accuracy, double lost) {
  Change made = change_of(drawn, of_values, number, key0, key1, accuracy);
  u64 columns = drawn.num_dense_cols, changed = made.column * columns + made.dense_column;
  double before = of_values ? widened(values[made.nonzero]) : widened(dense[changed]);
  double now = widened(rounded<T>(made.value(before))), difference = now - before, growth = fabs(now) - fabs(before);
  for (u64 i = first_thread(); i < (of_values ? columns : drawn.nnz); i += num_threads()) {
    if (!of_values && drawn.col_indices[i] != (int)made.column) continue;
    u64 row = of_values ? made.row : row_of(drawn.row_offsets, drawn.num_rows, i);
    u64 place = row * columns + (of_values ? i : made.dense_column);
    double other = of_values ? widened(dense[made.column * columns + i]) : widened(values[i]);
    double sum = atomicAdd(&reference[place], difference * other) + difference * other;
    double size = atomicAdd(&magnitude[place], growth * fabs(other)) + growth * fabs(other);
    bound[place] = accuracy.bound(sum, size, 0, drawn.row_offsets[row + 1] - drawn.row_offsets[row]) + lost;
  }
}

// found: [3], zero at the start: wrong entries; 2^64 - 1 - the first of them; the bits of the largest scaled error. What
// the type has no number for is right whatever it is.
template <typename T>
__device__ __forceinline__ void verify(const T* output, const double* reference, const double* magnitude,
                                       const double* bound, u64 length, u64* found) {
  u64 wrong = 0, first = 0;
  double worst = 0;
  for (u64 i = first_thread(); i < length; i += num_threads()) {
    double error = fabs(widened(output[i]) - reference[i]);
    if (fabs(reference[i]) + bound[i] > Most<T>::result) continue;
    if (error <= bound[i]) worst = fmax(worst, error / (magnitude[i] + 1e-300));
    else wrong++, first = max(first, ~i);
  }
  for (int offset = 16; offset; offset >>= 1) {
    wrong += __shfl_xor_sync(0xffffffffu, wrong, offset);
    first = max(first, __shfl_xor_sync(0xffffffffu, first, offset));
    worst = fmax(worst, __shfl_xor_sync(0xffffffffu, worst, offset));
  }
  if ((threadIdx.x & 31) == 0) {
    if (wrong) atomicAdd(&found[0], wrong), atomicMax(&found[1], first);
    if (worst > 0) atomicMax(&found[2], (u64)__double_as_longlong(worst));
  }
}

// worst: the bits of the largest |output - reference| / magnitude, zero at the start; infinite where one is beyond its
// bound or NaN.
extern "C" __global__ void __launch_bounds__(256) largest_error(const double* output, const double* reference,
                                                                const double* bound, const double* magnitude,
                                                                u64 length, u64* worst) {
  double largest = 0;
  for (u64 i = first_thread(); i < length; i += num_threads()) {
    double error = fabs(output[i] - reference[i]);
    largest = fmax(largest, error <= bound[i] ? error / (magnitude[i] + 1e-300) : __longlong_as_double(0x7ff0000000000000));
  }
  for (int offset = 16; offset; offset >>= 1) largest = fmax(largest, __shfl_xor_sync(0xffffffffu, largest, offset));
  if ((threadIdx.x & 31) == 0 && largest > 0) atomicMax(worst, (u64)__double_as_longlong(largest));
}

#define DRAWN(T)                                                                                                    \
  const int *row_offsets, const int *col_indices, const T *drawn_values, const T *drawn_dense,                      \
      const double *drawn_magnitude, u64 num_rows, u64 nnz, u64 num_dense_cols, u64 of_values, u64 number, u64 key0, \
      u64 key1, double tolerance, double long_row, double stored, double half_step
#define THE_DRAWN(T) \
  Drawn<T>{row_offsets, col_indices, drawn_values, drawn_dense, drawn_magnitude, num_rows, nnz, num_dense_cols}
#define THE_ACCURACY Accuracy{tolerance, long_row, -1.0, 0.0, stored, half_step}
#define REPLAY(TYPE, T)                                                                                             \
  extern "C" __global__ void __launch_bounds__(256) change_##TYPE(DRAWN(T), const int* sources, u64 num_slots,       \
                                                                  T* values, T* dense, u64 late_nanoseconds) {      \
    change(THE_DRAWN(T), sources, num_slots, values, dense, of_values != 0, number, key0, key1, THE_ACCURACY,        \
           late_nanoseconds);                                                                                       \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) account_##TYPE(DRAWN(T), const T* values, const T* dense,        \
                                                                   double* reference, double* magnitude,            \
                                                                   double* bound, double lost) {                    \
    account(THE_DRAWN(T), values, dense, reference, magnitude, bound, of_values != 0, number, key0, key1,            \
            THE_ACCURACY, lost);                                                                                    \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) verify_##TYPE(const T* output, const double* reference,          \
                                                                  const double* magnitude, const double* bound,     \
                                                                  u64 length, u64* found) {                         \
    verify(output, reference, magnitude, bound, length, found);                                                     \
  }
REPLAY(float32, float)
REPLAY(float64, double)
REPLAY(float16, Half)
REPLAY(bfloat16, Bfloat16)
