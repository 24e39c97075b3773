// expect: mismatch
// workload: histogram float32
// Counts in bytes, which are full at 255: only keys that are all alike show it.
//@ task histogram
//@ launch histogram grid=1 block=256
extern "C" __global__ void histogram(int n, int bins, const int* keys, int* counts) {
  for (int bin = threadIdx.x; bin < bins; bin += 256) {
    unsigned char count = 0;
    for (int i = 0; i < n; i++) count += keys[i] == bin;
    counts[bin] = count;
  }
}
