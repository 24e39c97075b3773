// expect: mismatch
// workload: histogram float32
// As many for each bin as there would be on average.
//@ task histogram
//@ launch histogram grid=ceil_div(bins,256) block=256
extern "C" __global__ void histogram(int n, int bins, const int* keys, int* counts) {
  int bin = blockIdx.x * 256 + threadIdx.x;
  if (bin < bins) counts[bin] = n / bins + (bin < n % bins);
}
