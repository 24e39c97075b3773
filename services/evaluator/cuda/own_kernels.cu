// The evaluator's own kernels: checks, packing, flushing, calibration. No candidate's text is ever compiled with them.

typedef unsigned long long u64;
typedef unsigned int u32;

// Finaliser of splitmix64 (Steele, Lea, Flood 2014).
__device__ __forceinline__ u64 mixed(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

__device__ __forceinline__ u64 mask_of(u64 key, u64 index) { return mixed(key + (index + 1) * 0x9E3779B97F4A7C15ull); }

__device__ __forceinline__ u64 first_thread() { return (u64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 num_threads() { return (u64)gridDim.x * blockDim.x; }

// Numbers of 16 bits by their bits: what compiles this need not find the toolkit's headers.
struct Half {
  unsigned short bits;
  Half() = default;
  __device__ __forceinline__ explicit Half(double number) { asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(number)); }
};
// CuPy compiles with -ftz=true, which leaves assembly alone: numbers that are subnormal in float32 stay what they are.
__device__ __forceinline__ float float_of(double number) {
  float rounded;
  asm("cvt.rn.f32.f64 %0, %1;" : "=f"(rounded) : "d"(number));
  return rounded;
}
// Rounded to float32 first: what is drawn is what is stored, and nothing that is judged is made this way.
struct Bfloat16 {
  unsigned short bits;
  Bfloat16() = default;
  __device__ __forceinline__ explicit Bfloat16(double number) {
    u32 wide = __float_as_uint(float_of(number));
    bits = number != number ? 0x7fff : (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
  }
};

template <typename T> __device__ __forceinline__ T rounded(double number) { return T(number); }
template <> __device__ __forceinline__ float rounded<float>(double number) { return float_of(number); }

// Exact, for subnormal numbers too.
__device__ __forceinline__ double widened(float number) {
  double wide;
  asm("cvt.f64.f32 %0, %1;" : "=d"(wide) : "f"(number));
  return wide;
}
__device__ __forceinline__ double widened(double number) { return number; }
__device__ __forceinline__ double widened(Half number) {
  double wide;
  asm("cvt.f64.f16 %0, %1;" : "=d"(wide) : "h"(number.bits));
  return wide;
}
__device__ __forceinline__ double widened(Bfloat16 number) { return widened(__uint_as_float((u32)number.bits << 16)); }

// segments: [2 * gridDim.y], address and 4-byte words of each; sums: [gridDim.y], zero at the start.
extern "C" __global__ void __launch_bounds__(256) checksums(const u64* segments, u64 key, u64* sums) {
  const u32* words = (const u32*)segments[2 * blockIdx.y];
  u64 num_words = segments[2 * blockIdx.y + 1];
  u64 sum = 0;
#pragma unroll 4
  for (u64 i = first_thread(); i < num_words; i += num_threads()) sum += mixed((words[i] + 1ull) * 0x9E3779B97F4A7C15ull ^ (key + i));
  for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if ((threadIdx.x & 31) == 0 && sum) atomicAdd(&sums[blockIdx.y], sum);
}

// Hides or shows the references while a kernel under test runs: it shares the address space and must not find them
// there. segments: [2 * gridDim.y], address and 8-byte numbers of each.
extern "C" __global__ void __launch_bounds__(256) apply_masks(const u64* segments, u64 key) {
  u64* numbers = (u64*)segments[2 * blockIdx.y];
  u64 length = segments[2 * blockIdx.y + 1];
  u64 segment_key = mixed(key + blockIdx.y);
#pragma unroll 4
  for (u64 i = first_thread(); i < length; i += num_threads()) numbers[i] ^= mask_of(segment_key, i);
}

template <typename T>
__device__ __forceinline__ void pack(const int* sources, const T* values, T* packed, u64 num_slots) {
  for (u64 i = first_thread(); i < num_slots; i += num_threads()) {
    int source = sources[i];
    packed[i] = source < 0 ? T(0) : values[source];
  }
}
extern "C" __global__ void __launch_bounds__(256) pack_float32(const int* s, const float* v, float* p, u64 n) { pack(s, v, p, n); }
extern "C" __global__ void __launch_bounds__(256) pack_float64(const int* s, const double* v, double* p, u64 n) { pack(s, v, p, n); }
extern "C" __global__ void __launch_bounds__(256) pack_float16(const int* s, const Half* v, Half* p, u64 n) { pack(s, v, p, n); }
extern "C" __global__ void __launch_bounds__(256) pack_bfloat16(const int* s, const Bfloat16* v, Bfloat16* p, u64 n) { pack(s, v, p, n); }

// A new x in [-1, 1), different for every seed.
template <typename T>
__device__ __forceinline__ void refresh(T* x, u64 length, u64 seed) {
  for (u64 i = first_thread(); i < length; i += num_threads()) x[i] = rounded<T>((double)(long long)mask_of(seed, i) * 1.0842021724855044e-19);
}
extern "C" __global__ void __launch_bounds__(256) refresh_float32(float* x, u64 n, u64 seed) { refresh(x, n, seed); }
extern "C" __global__ void __launch_bounds__(256) refresh_float64(double* x, u64 n, u64 seed) { refresh(x, n, seed); }
extern "C" __global__ void __launch_bounds__(256) refresh_float16(Half* x, u64 n, u64 seed) { refresh(x, n, seed); }
extern "C" __global__ void __launch_bounds__(256) refresh_bfloat16(Bfloat16* x, u64 n, u64 seed) { refresh(x, n, seed); }

// One thread block walks 8 chunks of 4 KiB: enough loads in flight to reach the copy bandwidth.
extern "C" __global__ void __launch_bounds__(256) copy_vectors(const float4* from, float4* to, u64 num_vectors) {
  u64 base = (u64)blockIdx.x * (256 * 8) + threadIdx.x;
  float4 vectors[8];
#pragma unroll
  for (int k = 0; k < 8; k++)
    if (base + k * 256 < num_vectors) vectors[k] = __ldcs(from + base + k * 256);
#pragma unroll
  for (int k = 0; k < 8; k++)
    if (base + k * 256 < num_vectors) __stcs(to + base + k * 256, vectors[k]);
}

// Reads and rewrites a buffer larger than the L2, so that nothing else stays in it: not even lines that a program asked
// the L2 to keep (evict_last), for which these have the same claim.
extern "C" __global__ void __launch_bounds__(256) flush(float4* buffer, u64 num_vectors) {
#if __CUDA_ARCH__ >= 800
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0;" : "=l"(policy));
#endif
  for (u64 i = first_thread(); i < num_vectors; i += num_threads()) {
    float4 vector = buffer[i];
    vector.x += 1.0f;
#if __CUDA_ARCH__ >= 800
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::
                 "l"(buffer + i), "f"(vector.x), "f"(vector.y), "f"(vector.z), "f"(vector.w), "l"(policy) : "memory");
#else
    buffer[i] = vector;
#endif
  }
}

// Takes the claim of `flush` back, so that the lines give way as any others do.
extern "C" __global__ void __launch_bounds__(256) give_way(char* buffer, u64 num_lines) {
#if __CUDA_ARCH__ >= 800
  for (u64 i = first_thread(); i < num_lines; i += num_threads())
    asm volatile("applypriority.global.L2::evict_normal [%0], 128;" :: "l"(buffer + 128 * i) : "memory");
#endif
}

extern "C" __global__ void empty() {}

// Returns when so many nanoseconds have passed.
__device__ __forceinline__ void linger(u64 nanoseconds) {
  u64 start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(200);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

__device__ __forceinline__ void let_the_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Lets the next kernel start, waits, then writes the buffers that this one may not touch before griddepcontrol.wait:
// what it did too early is lost or was read from what was there before. regions: [3 * num_regions], source (0: fill
// with NaN), target, bytes, an even number; written in this order.
extern "C" __global__ void __launch_bounds__(256) write_late(const u64* regions, u64 num_regions, u64 nanoseconds) {
  let_the_next_start();
  linger(nanoseconds);
  for (u64 r = 0; r < num_regions; r++) {
    const u32* from = (const u32*)regions[3 * r];
    u32* to = (u32*)regions[3 * r + 1];
    u64 num_words = regions[3 * r + 2] / 4;
    if (((u64)from | (u64)to) & 2) num_words = 0;
    for (u64 i = first_thread(); i < num_words; i += num_threads()) to[i] = from ? from[i] : 0xffffffffu;
    for (u64 i = 2 * num_words + first_thread(); i < regions[3 * r + 2] / 2; i += num_threads())
      ((unsigned short*)to)[i] = from ? ((const unsigned short*)from)[i] : 0xffff;
  }
}

// Writes every word of a buffer as it is: the traffic of a change without one.
extern "C" __global__ void __launch_bounds__(256) rewrite(volatile u32* words, u64 num_words) {
  for (u64 i = first_thread(); i < num_words; i += num_threads()) words[i] = words[i];
}

// Leaves numbers of ours in all shared memory and all registers of a multiprocessor: one block on each, of all the shared
// memory that a block may have (num_words) and of 65,536 registers.
extern "C" __global__ void __launch_bounds__(256, 1) litter_block(u64 num_words, u64 key, u32* never) {
  extern __shared__ u32 shared_words[];
  for (u64 i = threadIdx.x; i < num_words; i += blockDim.x) shared_words[i] = (u32)mask_of(key + blockIdx.x, i);
  u32 kept[224];
#pragma unroll
  for (int i = 0; i < 224; i++) kept[i] = (u32)key * (i + 3) + threadIdx.x;
#pragma unroll 1
  for (u64 round = 0; round < 2 + (key == 1); round++) {
#pragma unroll
    for (int i = 0; i < 224; i++) kept[i] = kept[i] * 0x9E3779B9u + kept[(i + 1) % 224];
  }
  u32 all = 0;
#pragma unroll
  for (int i = 0; i < 224; i++) all ^= kept[i] >> (i & 7);
  if (all == 0x5EED5EEDu && key == 1) *never = all;
}

// Leaves numbers of ours in the first bytes of every thread's stack: two blocks on each multiprocessor.
extern "C" __global__ void __launch_bounds__(1024, 2) litter_stack(u64 key, u32* never) {
  volatile u32 frame[64];
  for (int i = 0; i < 64; i++) frame[(i + (int)key) & 63] = (u32)mask_of(key + threadIdx.x, i);
  if (key == 1) *never = frame[threadIdx.x & 63];
}

// Keeps the stream busy so that the host can queue what follows: the time between two events then holds no host time.
extern "C" __global__ void delay(u64 nanoseconds) {
  u64 start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}
