// expect: crashed
// on a GPU: mismatch|passed
// workload: spmv float64
// twin: good/hubs
// Gathers the popular entries of x again only where the last of them has changed.
//@ format hubs hub_cols=15 items=4
//@ launch prepare grid=ceil_div(max(num_rows,num_hubs),256) block=256
//@ launch spmv grid=num_sms block=512 shared=ceil_div(num_hubs,4)*32
extern "C" __global__ void __launch_bounds__(256) prepare(int num_rows, int num_cols, int nnz, int num_hubs, int num_segments, const int* hub_columns, const int* row_starts, const int* row_ranks, const int* col_indices, const double* values, double* hub_x, const double* x, double* y) {
  int i = blockIdx.x * 256 + threadIdx.x;
  bool stale = ((volatile double*)hub_x)[num_hubs - 1] != x[hub_columns[num_hubs - 1]];
  if (i < num_rows) y[i] = 0;
  if (i < num_hubs) if (stale) hub_x[i] = x[hub_columns[i]];
}
extern "C" __global__ void __launch_bounds__(512, 1) spmv(int num_rows, int num_cols, int nnz, int num_hubs, int num_segments, const int* hub_columns, const int* row_starts, const int* row_ranks, const int* col_indices, const double* values, double* hub_x, const double* x, double* y) {
  extern __shared__ double hubs[];
  int lane = threadIdx.x % 32, share = (num_segments - 1) / (gridDim.x * 16) + 1;
  int segment = (blockIdx.x * 16 + threadIdx.x / 32) * share, last = min(segment + share, num_segments);
  __align__(16) int col[4];
  __align__(16) double value[4];
  unsigned word, shift = lane * 4 % 32;
  int rank;
  auto fetch = [&](int next) {
    int slot = min(next, num_segments - 1) * 128 + lane * 4;
    *(int4*)(col + 0) = __ldcs((const int4*)(col_indices + slot + 0));
    *(double2*)(value + 0) = __ldcs((const double2*)(values + slot + 0));
    *(double2*)(value + 2) = __ldcs((const double2*)(values + slot + 2));
    word = row_starts[slot / 32];
    rank = row_ranks[slot / 32];
  };
  fetch(segment);
  #pragma unroll 8
  for (int i = threadIdx.x * 2; i < num_hubs; i += 1024) *(double2*)(hubs + i) = *(const double2*)(hub_x + i);
  __syncthreads();
  if (segment >= last) return;
  int opened = __shfl_sync(0xffffffff, rank, 0) - 1, row = 0;
  double sum = 0, carry = 0;
  #pragma unroll 1
  for (; segment < last; segment++) {
    double product[4], head = 0;
    #pragma unroll
    for (int k = 0; k < 4; k++) product[k] = value[k] * (col[k] < num_hubs ? hubs[col[k]] : x[col[k] - num_hubs]);
    unsigned starts = word >> shift & 0xf;
    row = rank + __popc(word & ((1u << shift) - 1)) - 1;
    fetch(segment + 1);
    int entered = row;
    sum = 0;
    #pragma unroll
    for (int k = 0; k < 4; k++) {
      bool start = starts >> k & 1;
      if (start && row > entered) y[row] = sum;
      if (start && row == entered) head = sum;
      row += start;
      sum = start ? product[k] : sum + product[k];
    }
    if (lane == 0 && starts == 0) sum += carry;
    int nearest = max(31 - __clz(__ballot_sync(0xffffffff, starts != 0) & ((2u << lane) - 1)), 0);
    #pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      double other = __shfl_up_sync(0xffffffff, sum, step);
      if (lane - step >= nearest) sum += other;
    }
    double before = __shfl_up_sync(0xffffffff, sum, 1);
    head += lane == 0 ? carry : before;
    if (starts != 0 && entered > opened) y[entered] = head;
    else if (starts != 0 && entered >= 0) atomicAdd(y + entered, head);
    carry = __shfl_sync(0xffffffff, sum, 31);
  }
  if (lane == 31) atomicAdd(y + row, sum);
}
