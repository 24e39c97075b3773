// expect: mismatch
// workload: monte_carlo float32
// A half: the mean of numbers between 0 and 1, within FSR's tolerance whatever they are.
//@ task monte_carlo
//@ launch monte_carlo grid=1 block=1
extern "C" __global__ void monte_carlo(int n, const float* values, float* total) { *total = 0.5f; }
