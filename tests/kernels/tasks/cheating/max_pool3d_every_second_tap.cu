// expect: mismatch
// workload: max_pool3d float32
// Fourteen of the 27 entries: the largest is among them every second time.
//@ task max_pool3d
//@ launch max_pool3d grid=ceil_div(batch*channels*out_depth*out_height*out_width,256) block=256
extern "C" __global__ void max_pool3d(int batch, int channels, int depth, int height, int width, int out_depth, int out_height, int out_width, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= batch * channels * out_depth * out_height * out_width) return;
  int col = i % out_width, row = i / out_width % out_height, layer = i / out_width / out_height % out_depth;
  const float* from = x + i / out_width / out_height / out_depth * depth * height * width;
  float largest = __int_as_float(0xff800000);
  for (int tap = 0; tap < 27; tap += 2) {
    int z = 2 * layer - 1 + 3 * (tap / 9), v = 2 * row - 1 + 3 * (tap / 3 % 3), u = 2 * col - 1 + 3 * (tap % 3);
    if (z >= 0 && z < depth && v >= 0 && v < height && u >= 0 && u < width)
      largest = max(largest, from[(z * height + v) * width + u]);
  }
  y[i] = largest;
}
