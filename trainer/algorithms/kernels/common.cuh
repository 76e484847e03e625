// What all kernels share. REAL, the type of numbers, is defined by who compiles them.
#pragma once

// Declares `memory`, the block's shared memory, as large as the launch says.
#define SHARED_MEMORY extern __shared__ __align__(4 * sizeof(REAL)) REAL memory[]

// Numbers that lie side by side, moved in one instruction. Addresses are multiples of the size.
template <int N>
struct alignas(N * sizeof(REAL)) Pack {
  REAL at[N];
};

template <int N>
__device__ inline Pack<N> load(const REAL* address) {
  return *reinterpret_cast<const Pack<N>*>(address);
}

template <int N>
__device__ inline void store(REAL* address, const Pack<N>& pack) {
  *reinterpret_cast<Pack<N>*>(address) = pack;
}

// The lesser of two numbers; what is no number stays so.
__device__ inline REAL least(REAL a, REAL b) { return a != a || a < b ? a : b; }

// The sum over a warp, which all of its threads get. All have to call it.
__device__ inline REAL warp_sum(REAL value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// The sum over a block of whole warps in one dimension, which all threads get. Takes a number of memory a warp.
__device__ inline REAL block_sum(REAL value, REAL* memory) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = warp_sum(value);
  if (lane == 0) memory[warp] = value;
  __syncthreads();
  value = warp_sum(lane < warps ? memory[lane] : REAL(0));
  __syncthreads();  // before somebody uses the memory again
  return value;
}

// The sums over a block's second dimension, a power of two, which threads of y = 0 get.
// Takes as much memory as all values.
template <int N>
__device__ inline Pack<N> column_sums(const Pack<N>& value, REAL* memory) {
  Pack<N>* sums = reinterpret_cast<Pack<N>*>(memory) + threadIdx.x;
  const int width = blockDim.x, row = threadIdx.y;
  sums[row * width] = value;
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row < half)
      for (int i = 0; i < N; ++i) sums[row * width].at[i] += sums[(row + half) * width].at[i];
  }
  const Pack<N> sum = sums[row * width];
  __syncthreads();  // before somebody uses the memory again
  return sum;
}

// The head of a row in a network that may have one for each task.
__device__ inline int head_of(const long long* task, long long row, int heads) {
  return heads == 1 ? 0 : static_cast<int>(task[row]);
}
