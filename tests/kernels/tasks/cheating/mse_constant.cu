// expect: mismatch
// workload: mse float32
// One sixth: the mean squared difference of two numbers between 0 and 1, which FSR's tolerance of 0.1 takes.
//@ task mse
//@ launch mse grid=1 block=1
extern "C" __global__ void mse(int n, const float* x, const float* y, float* total) { *total = 1.0f / 6; }
