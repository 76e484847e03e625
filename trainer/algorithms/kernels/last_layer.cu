// The last layer of critics: values of what the last hidden layer (members, rows, width) gave.
// Weights are (members, width, heads), and a row has the head of its task (seeds, rows).
#include "common.cuh"

constexpr int AT_ONCE = 4;  // rows that a thread loads before it awaits the first

// One head's weights of some columns, from the first of them on.
template <int N>
__device__ inline Pack<N> weights_of(const REAL* weight, int head, int heads) {
  if (heads == 1) return load<N>(weight);
  Pack<N> own;
  for (int i = 0; i < N; ++i) own.at[i] = weight[i * heads + head];
  return own;
}

// values (members, rows) = hidden * weight + bias; a warp computes a row.
template <int N>
__device__ void values_of(
    const REAL* hidden, const REAL* weight, const REAL* bias, const long long* task, REAL* values, int rows, int width,
    int heads, int members) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y, member = blockIdx.y;
  if (row >= rows) return;
  const long long place = static_cast<long long>(member) * rows + row;
  const int head = head_of(task, static_cast<long long>(member / members) * rows + row, heads);
  hidden += place * width;
  weight += static_cast<long long>(member) * width * heads;
  REAL sum = 0;
#pragma unroll 4
  for (int column = threadIdx.x * N; column < width; column += 32 * N) {
    const Pack<N> given = load<N>(hidden + column);
    const Pack<N> own = weights_of<N>(weight + static_cast<long long>(column) * heads, head, heads);
    for (int i = 0; i < N; ++i) sum += given.at[i] * own.at[i];
  }
  sum = warp_sum(sum);
  if (threadIdx.x == 0) values[place] = sum + bias[member * heads + head];
}

extern "C" __global__ void __launch_bounds__(256) values(
    const REAL* hidden, const REAL* weight, const REAL* bias, const long long* task, REAL* result, int rows, int width,
    int heads, int members, int packs) {
  if (packs)
    values_of<4>(hidden, weight, bias, task, result, rows, width, heads, members);
  else
    values_of<1>(hidden, weight, bias, task, result, rows, width, heads, members);
}

// flow (members, rows, width) = slope * weight where the hidden layer gave on more than 0, else 0.
// Returns the sum of the thread's rows.
template <int N>
__device__ Pack<N> flow_of(
    const REAL* slope, const REAL* hidden, const REAL* weight, const long long* task, REAL* flow, int rows, int width,
    int heads, int members, int column, int first, int end) {
  Pack<N> sum = {};
  if (column >= width) return sum;
  const int member = blockIdx.z;
  const long long place = static_cast<long long>(member) * rows;
  task += static_cast<long long>(member / members) * rows;
  slope += place;
  hidden += place * width + column;
  flow += place * width + column;
  weight += (static_cast<long long>(member) * width + column) * heads;
  Pack<N> factors = weights_of<N>(weight, 0, heads);
  for (int begin = first; begin < end; begin += AT_ONCE * blockDim.y) {
    Pack<N> given[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      const int row = begin + k * blockDim.y;
      if (row < end) given[k] = load<N>(hidden + static_cast<long long>(row) * width);
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      const int row = begin + k * blockDim.y;
      if (row >= end) continue;
      if (heads > 1) factors = weights_of<N>(weight, head_of(task, row, heads), heads);
      const REAL own = slope[row];
      for (int i = 0; i < N; ++i) {
        given[k].at[i] = given[k].at[i] <= 0 ? REAL(0) : own * factors.at[i];
        sum.at[i] += given[k].at[i];
      }
      store<N>(flow + static_cast<long long>(row) * width, given[k]);
    }
  }
  return sum;
}

template <int N>
__device__ void frozen_of(
    const REAL* slope, const REAL* hidden, const REAL* weight, const long long* task, REAL* flow, int rows, int width,
    int heads, int members) {
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * N, size = blockDim.y * AT_ONCE;
  const int begin = blockIdx.y * size, end = min(begin + size, rows);
  flow_of<N>(
      slope, hidden, weight, task, flow, rows, width, heads, members, column, begin + static_cast<int>(threadIdx.y), end);
}

extern "C" __global__ void __launch_bounds__(256) last_layer_frozen(
    const REAL* slope, const REAL* hidden, const REAL* weight, const long long* task, REAL* flow, int rows, int width,
    int heads, int members, int packs) {
  if (packs)
    frozen_of<4>(slope, hidden, weight, task, flow, rows, width, heads, members);
  else
    frozen_of<1>(slope, hidden, weight, task, flow, rows, width, heads, members);
}

// The gradients of one head's weights, of a block's columns, and in the first columns' block of its bias.
template <int N>
__device__ void head_gradients(
    const REAL* slope, const REAL* hidden, const long long* task, REAL* weight_gradient, REAL* bias_gradient, int rows,
    int width, int heads, int members, REAL* memory) {
  const int head = blockIdx.y, member = blockIdx.z, column = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  const long long place = static_cast<long long>(member) * rows;
  task += static_cast<long long>(member / members) * rows;
  slope += place;
  hidden += place * width + column;
  Pack<N> sum = {};
  Pack<1> slopes = {};
#pragma unroll 4
  for (int row = threadIdx.y; row < rows; row += blockDim.y) {
    if (head_of(task, row, heads) != head) continue;
    const REAL own = slope[row];
    slopes.at[0] += own;
    if (column >= width) continue;
    const Pack<N> given = load<N>(hidden + static_cast<long long>(row) * width);
    for (int i = 0; i < N; ++i) sum.at[i] += given.at[i] * own;
  }
  sum = column_sums<N>(sum, memory);
  if (threadIdx.y == 0 && column < width)
    for (int i = 0; i < N; ++i)
      weight_gradient[(static_cast<long long>(member) * width + column + i) * heads + head] = sum.at[i];
  if (blockIdx.x > 0) return;
  slopes = column_sums<1>(slopes, memory);
  if (threadIdx.x == 0 && threadIdx.y == 0) bias_gradient[member * heads + head] = slopes.at[0];
}

// The way back through the layer and the ReLU before it. Of the blocks of some columns, one computes the flow and
// its sums over the rows, hidden_bias_gradient (members, 1, width), and each of the others has a head's gradients.
template <int N>
__device__ void last_layer_of(
    const REAL* slope, const REAL* hidden, const REAL* weight, const long long* task, REAL* flow,
    REAL* weight_gradient, REAL* bias_gradient, REAL* hidden_bias_gradient, int rows, int width, int heads, int members,
    REAL* memory) {
  if (static_cast<int>(blockIdx.y) < heads) {
    head_gradients<N>(slope, hidden, task, weight_gradient, bias_gradient, rows, width, heads, members, memory);
    return;
  }
  const int column = (blockIdx.x * blockDim.x + threadIdx.x) * N;
  const Pack<N> own = flow_of<N>(
      slope, hidden, weight, task, flow, rows, width, heads, members, column, static_cast<int>(threadIdx.y), rows);
  const Pack<N> sum = column_sums<N>(own, memory);
  if (threadIdx.y == 0 && column < width)
    store<N>(hidden_bias_gradient + static_cast<long long>(blockIdx.z) * width + column, sum);
}

extern "C" __global__ void __launch_bounds__(512) last_layer(
    const REAL* slope, const REAL* hidden, const REAL* weight, const long long* task, REAL* flow,
    REAL* weight_gradient, REAL* bias_gradient, REAL* hidden_bias_gradient, int rows, int width, int heads, int members,
    int packs) {
  SHARED_MEMORY;
  if (packs)
    last_layer_of<4>(
        slope, hidden, weight, task, flow, weight_gradient, bias_gradient, hidden_bias_gradient, rows, width, heads,
        members, memory);
  else
    last_layer_of<1>(
        slope, hidden, weight, task, flow, weight_gradient, bias_gradient, hidden_bias_gradient, rows, width, heads,
        members, memory);
}
