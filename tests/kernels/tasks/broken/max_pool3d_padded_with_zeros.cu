// expect: mismatch
// workload: max_pool3d float32
// Places outside count as zero, which is larger than what is negative.
//@ task max_pool3d
//@ launch max_pool3d grid=ceil_div(batch*channels*out_depth*out_height*out_width,256) block=256
extern "C" __global__ void max_pool3d(int batch, int channels, int depth, int height, int width, int out_depth, int out_height, int out_width, const float* x, float* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= batch * channels * out_depth * out_height * out_width) return;
  int col = i % out_width, row = i / out_width % out_height, layer = i / out_width / out_height % out_depth;
  const float* from = x + i / out_width / out_height / out_depth * depth * height * width;
  float largest = __int_as_float(0xff800000);
  for (int r = 0; r < 3; r++)
    for (int s = 0; s < 3; s++)
      for (int t = 0; t < 3; t++) {
        int z = 2 * layer - 1 + 3 * r, v = 2 * row - 1 + 3 * s, u = 2 * col - 1 + 3 * t;
        bool inside = z >= 0 && z < depth && v >= 0 && v < height && u >= 0 && u < width;
        largest = max(largest, inside ? from[(z * height + v) * width + u] : 0.0f);
      }
  y[i] = largest;
}
