// Batches of transitions, drawn and gathered as `trainer.replay.draw` does, to the bit. The second dimension of a
// grid is the seeds', and a warp has a row of a batch.
#include "last_block.cuh"

// The tensors of `trainer.replay.draw.DrawSource`, in their order.
struct Source {
  const float* rows;  // a transition is a row and the beginning of the next
  const long long* rota;
  long long* rotation;
  const long long *lanes, *offset;
  const double* drawn;
};

// The last of some numbers, which ascend, that is at most so large. The first of them is.
__device__ inline int last_at_most(const long long* numbers, int count, long long bound) {
  int low = 0, high = count;  // the number at low is, that at high is not
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (numbers[middle] <= bound)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// window (seeds, batch, width) and task (seeds, batch).
extern "C" __global__ void __launch_bounds__(256) sample(
    const Source* sources, int* tickets, float* window, long long* task, int batch, int width, int row_width,
    int lanes, int per_task, int steps, int rotations) {
  const Source own = sources[blockIdx.y];
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  const long long rotation = *own.rotation;
  if (row < batch) {
    const long long place = static_cast<long long>(blockIdx.y) * batch + row, kind = own.rota[rotation * batch + row];
    const long long *size = own.lanes, *begin = size + lanes, *shift = begin + lanes;
    int lane = kind * per_task;
    const long long rank = begin[lane] + static_cast<long long>(own.drawn[row] * static_cast<double>(size[lane]));
    if (per_task > 1) lane = last_at_most(begin, lanes, rank);
    const long long number = rank + shift[lane], first = number + own.offset[number / steps];
    const float* transition = own.rows + first * row_width;
    for (int column = threadIdx.x; column < width; column += 32) window[place * width + column] = transition[column];
    if (threadIdx.x == 0) task[place] = kind;
  }
  if (is_last_block(tickets + blockIdx.y) && threadIdx.x == 0 && threadIdx.y == 0)
    *own.rotation = (rotation + 1) % rotations;
}
