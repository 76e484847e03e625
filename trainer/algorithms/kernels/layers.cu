// Hidden layers: values (members, rows, width), of which each thread has a few rows of one or four columns.
#include "common.cuh"

constexpr int ROWS = 4;  // of a thread at a time, whose loads are all under way before the first is awaited

// values = relu(values + bias), with a bias (members, 1, width).
template <int N>
__device__ void bias_relu_of(REAL* values, const REAL* bias, int rows, int width) {
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  if (column >= width) return;
  const int first = blockIdx.y * blockDim.y * ROWS + threadIdx.y;
  values += static_cast<long long>(blockIdx.z) * rows * width + column;
  const Pack<N> added = load<N>(bias + static_cast<long long>(blockIdx.z) * width + column);
  Pack<N> own[ROWS];
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const int row = first + k * blockDim.y;
    if (row < rows) own[k] = load<N>(values + static_cast<long long>(row) * width);
  }
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const int row = first + k * blockDim.y;
    for (int i = 0; i < N; ++i) {
      const REAL value = own[k].at[i] + added.at[i];
      own[k].at[i] = value <= 0 ? REAL(0) : value;  // what is no number stays so
    }
    if (row < rows) store<N>(values + static_cast<long long>(row) * width, own[k]);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    bias_relu(REAL* values, const REAL* bias, int rows, int width, int packs) {
  if (packs)
    bias_relu_of<4>(values, bias, rows, width);
  else
    bias_relu_of<1>(values, bias, rows, width);
}

// gradient = 0 where the hidden layer gave on 0. Returns the sum of the thread's rows.
// The members of the hidden layer may lie apart.
template <int N>
__device__ Pack<N> masked(
    REAL* gradient, const REAL* hidden, int hidden_stride, int rows, int width, int column, int first, int end) {
  Pack<N> sum = {};
  if (column >= width) return sum;
  gradient += static_cast<long long>(blockIdx.z) * rows * width + column;
  hidden += static_cast<long long>(blockIdx.z) * hidden_stride + column;
  for (int begin = first; begin < end; begin += ROWS * blockDim.y) {
    Pack<N> own[ROWS], given[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      const int row = begin + k * blockDim.y;
      if (row >= end) continue;
      own[k] = load<N>(gradient + static_cast<long long>(row) * width);
      given[k] = load<N>(hidden + static_cast<long long>(row) * width);
    }
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      const int row = begin + k * blockDim.y;
      if (row >= end) continue;
      for (int i = 0; i < N; ++i) {
        if (given[k].at[i] <= 0) own[k].at[i] = 0;
        sum.at[i] += own[k].at[i];
      }
      store<N>(gradient + static_cast<long long>(row) * width, own[k]);
    }
  }
  return sum;
}

template <int N>
__device__ void mask_of(REAL* gradient, const REAL* hidden, int hidden_stride, int rows, int width) {
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  const int begin = blockIdx.y * blockDim.y * ROWS, end = min(begin + static_cast<int>(blockDim.y) * ROWS, rows);
  masked<N>(gradient, hidden, hidden_stride, rows, width, column, begin + threadIdx.y, end);
}

extern "C" __global__ void __launch_bounds__(256)
    mask(REAL* gradient, const REAL* hidden, int hidden_stride, int rows, int width, int packs) {
  if (packs)
    mask_of<4>(gradient, hidden, hidden_stride, rows, width);
  else
    mask_of<1>(gradient, hidden, hidden_stride, rows, width);
}

// The same, and bias (members, 1, width) = the sums over all rows, which a block has of its columns.
template <int N>
__device__ void mask_sum_of(
    REAL* gradient, const REAL* hidden, int hidden_stride, REAL* bias, int rows, int width, REAL* memory) {
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  const Pack<N> own = masked<N>(gradient, hidden, hidden_stride, rows, width, column, threadIdx.y, rows);
  const Pack<N> sum = column_sums<N>(own, memory);
  if (threadIdx.y == 0 && column < width) store<N>(bias + static_cast<long long>(blockIdx.z) * width + column, sum);
}

extern "C" __global__ void __launch_bounds__(512) mask_sum(
    REAL* gradient, const REAL* hidden, int hidden_stride, REAL* bias, int rows, int width, int packs) {
  SHARED_MEMORY;
  if (packs)
    mask_sum_of<4>(gradient, hidden, hidden_stride, bias, rows, width, memory);
  else
    mask_sum_of<1>(gradient, hidden, hidden_stride, bias, rows, width, memory);
}
