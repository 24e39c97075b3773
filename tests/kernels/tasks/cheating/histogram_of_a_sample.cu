// expect: mismatch
// workload: histogram float32
// Every fourth key, counted four times.
//@ task histogram
//@ launch begin grid=ceil_div(bins,256) block=256
//@ launch count grid=ceil_div(n,1024) block=256
extern "C" __global__ void begin(int n, int bins, const int* keys, int* counts) {
  int bin = blockIdx.x * 256 + threadIdx.x;
  if (bin < bins) counts[bin] = 0;
}
extern "C" __global__ void count(int n, int bins, const int* keys, int* counts) {
  int i = 4 * (blockIdx.x * 256 + threadIdx.x);
  if (i < n) atomicAdd(&counts[keys[i]], min(4, n - i));
}
