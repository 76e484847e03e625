// What networks are given: observations standardised, with the task's one-hot id, and actions beside them.
#include "common.cuh"

// Numbers of a batch (seeds, rows, columns), whose seeds and rows may lie apart.
struct Columns {
  const REAL* numbers;
  int seed_stride, row_stride;
  __device__ REAL at(int seed, int row, int column) const {
    return numbers[static_cast<long long>(seed) * seed_stride + static_cast<long long>(row) * row_stride + column];
  }
};

// actor (seeds, 2 rows, features): of the observations, then of the next ones. taken, proposed and following
// (seeds, rows, features + actions): those of the observations with the action, the same with room for one, and
// those of the next observations with room for one. Features beyond the observation are the task's id.
extern "C" __global__ void __launch_bounds__(256) inputs(
    const REAL* observation, int observation_seed, int observation_row, const REAL* next_observation, int next_seed,
    int next_row, const REAL* action, int action_seed, int action_row, const long long* task, const REAL* mean,
    const REAL* std, int statistics_stride, REAL* actor, REAL* taken, REAL* proposed, REAL* following, int rows,
    int observations, int features, int actions) {
  const int seed = blockIdx.y, width = features + actions;
  const int number = blockIdx.x * blockDim.x + threadIdx.x;
  if (number >= 2 * rows * width) return;
  const int column = number % width, drawn = number / width, row = drawn < rows ? drawn : drawn - rows;
  const bool now = drawn < rows;
  const long long place = (static_cast<long long>(seed) * rows + row) * width + column;
  if (column >= features) {
    if (now) taken[place] = Columns{action, action_seed, action_row}.at(seed, row, column - features);
    return;
  }
  REAL feature;
  if (column < observations) {
    const Columns given = now ? Columns{observation, observation_seed, observation_row}
                              : Columns{next_observation, next_seed, next_row};
    const int statistic = seed * statistics_stride + column;
    feature = (given.at(seed, row, column) - mean[statistic]) / std[statistic];
  } else {
    feature = task[static_cast<long long>(seed) * rows + row] == column - observations ? REAL(1) : REAL(0);
  }
  actor[(static_cast<long long>(seed) * 2 * rows + drawn) * features + column] = feature;
  if (now) {
    taken[place] = feature;
    proposed[place] = feature;
  } else {
    following[place] = feature;
  }
}
