// Blocks that meet, where a result needs what all of them have read or written.
#pragma once

// Whether this block is the last of those with its y to come here; all that the others wrote before they came is
// there then. The ticket is 0 before the first, and again after the last.
__device__ inline bool is_last_block(int* ticket) {
  __threadfence();
  __syncthreads();
  bool last = false;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    last = atomicAdd(ticket, 1) == static_cast<int>(gridDim.x) - 1;
    if (last) *ticket = 0;
  }
  const bool told = __syncthreads_or(last);
  __threadfence();
  return told;
}
