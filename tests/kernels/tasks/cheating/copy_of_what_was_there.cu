// expect: mismatch
// workload: copy float32
// Writes nothing: right where the output still holds the last result.
//@ task copy
//@ launch copy grid=1 block=1
extern "C" __global__ void copy(int rows, int cols, const float* x, float* y) {}
