"""An iteration of conjugate gradients beside its product, in three launches: sums are added up where vectors are read anyway,
and stay on the device.

`state` holds r r before the step, r r after it, and p q. Each is cleared by a launch that does not read it:

    curvature   before = after; after = 0; p q summed up
    descent     step = before / p q; x += step p; r -= step q; after = r r
    turning     p = r + after / before p; p q = 0
"""

from typing import Any

THREADS = 256
MOST_BLOCKS = 1024
"""One atomic addition each."""

SOURCE = r"""
__device__ void add_up(double part, double* total) {
  __shared__ double of_warps[8];
  for (int apart = 16; apart; apart /= 2) part += __shfl_down_sync(0xffffffffu, part, apart);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = part;
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int warp = 0; warp < 8; warp++) sum += of_warps[warp];
    atomicAdd(total, sum);
  }
}

extern "C" __global__ void curvature(int n, const double* p, const double* q, double* state) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    state[0] = state[1];
    state[1] = 0;
  }
  double part = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) part += p[i] * q[i];
  add_up(part, state + 2);
}

extern "C" __global__ void descent(int n, const double* p, const double* q, double* x, double* r, double* state) {
  const double step = state[0] / state[2];
  double part = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    x[i] += step * p[i];
    const double rest = r[i] - step * q[i];
    r[i] = rest;
    part += rest * rest;
  }
  add_up(part, state + 1);
}

extern "C" __global__ void turning(int n, const double* r, double* p, double* state) {
  const double share = state[1] / state[0];
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = r[i] + share * p[i];
  if (blockIdx.x == 0 && threadIdx.x == 0) state[2] = 0;
}
"""


class CgKernels:
    """Of vectors of one length, on CuPy's current stream."""

    def __init__(self, cupy: Any, length: int) -> None:
        named = (cupy.RawKernel(SOURCE, name) for name in ("curvature", "descent", "turning"))
        self._curvature, self._descent, self._turning = named
        self._grid = (blocks(length),)
        self._length = cupy.int32(length)
        self._state = cupy.zeros(3)

    def start(self, square: Any) -> None:
        """`square`: r r, on the device."""
        self._state[...] = 0
        self._state[1] = square

    def step(self, p: Any, q: Any, x: Any, r: Any) -> None:
        """q = A p has been computed; p becomes the next direction."""
        grid, block, n, state = self._grid, (THREADS,), self._length, self._state
        self._curvature(grid, block, (n, p, q, state))
        self._descent(grid, block, (n, p, q, x, r, state))
        self._turning(grid, block, (n, r, p, state))


def blocks(length: int) -> int:
    """Of a launch over so many elements."""
    return max(1, min(MOST_BLOCKS, -(-length // THREADS)))
