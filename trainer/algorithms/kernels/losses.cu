// Losses of a batch, with their slopes. A block has a seed's whole batch. Of two critics, or more, the least value
// counts. Log-densities of a seed lie side by side, and those of the next one a stride further.
#include "common.cuh"

__device__ inline REAL least_of(const REAL* values, int row, int rows, int members) {
  REAL value = values[row];
  for (int member = 1; member < members; ++member)
    value = least(value, values[static_cast<long long>(member) * rows + row]);
  return value;
}

// slope (members, rows) of the mean squared temporal-difference error; the loss and the mean value (seeds).
// goes_on (seeds, rows) and reward_factor (seeds, tasks) may be missing.
extern "C" __global__ void __launch_bounds__(512) td_slope(
    const REAL* values, const REAL* target_values, const REAL* log_density, int density_stride, const REAL* log_alpha,
    const long long* task, const REAL* reward, int reward_seed, int reward_row, const REAL* goes_on, int goes_on_seed,
    int goes_on_row, const REAL* reward_factor, REAL* slope, REAL* loss, REAL* mean, int rows, int members, int tasks,
    double gamma, double reward_scale) {
  SHARED_MEMORY;
  const long long seed = blockIdx.x, place = seed * members * rows;
  values += place;
  target_values += place;
  slope += place;
  log_density += seed * density_stride;
  log_alpha += seed * tasks;
  task += seed * rows;
  reward += seed * reward_seed;
  const REAL terms = static_cast<REAL>(members) * rows;
  REAL squares = 0, sum = 0;
#pragma unroll 1
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    const long long own = task[row];
    REAL value = least_of(target_values, row, rows, members) - exp(log_alpha[own]) * log_density[row];
    if (goes_on) value *= goes_on[seed * goes_on_seed + static_cast<long long>(row) * goes_on_row];
    REAL target = static_cast<REAL>(reward_scale) * reward[static_cast<long long>(row) * reward_row];
    if (reward_factor) target *= reward_factor[seed * tasks + own];
    target += static_cast<REAL>(gamma) * value;
#pragma unroll 1
    for (int member = 0; member < members; ++member) {
      const long long index = static_cast<long long>(member) * rows + row;
      const REAL error = values[index] - target;
      slope[index] = error * (2 / terms);
      squares += error * error;
      sum += values[index];
    }
  }
  squares = block_sum(squares, memory);
  sum = block_sum(sum, memory);
  if (threadIdx.x > 0) return;
  loss[seed] = squares / terms;
  mean[seed] = sum / terms;
}

// slope (members, rows) of the mean of alpha log_density - value, shared by those that have the least value.
extern "C" __global__ void __launch_bounds__(512) actor_slope(
    const REAL* values, const REAL* log_density, int density_stride, const REAL* log_alpha, const long long* task,
    REAL* slope, REAL* loss, int rows, int members, int tasks) {
  SHARED_MEMORY;
  const long long seed = blockIdx.x, place = seed * members * rows;
  values += place;
  slope += place;
  log_density += seed * density_stride;
  log_alpha += seed * tasks;
  task += seed * rows;
  REAL sum = 0;
#pragma unroll 1
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    const REAL value = least_of(values, row, rows, members);
    REAL low = 0;
#pragma unroll 1
    for (int member = 0; member < members; ++member)
      low += values[static_cast<long long>(member) * rows + row] == value ? REAL(1) : REAL(0);
#pragma unroll 1
    for (int member = 0; member < members; ++member) {
      const long long index = static_cast<long long>(member) * rows + row;
      slope[index] = (values[index] == value ? REAL(1) : REAL(0)) / low / -rows;  // 0 / 0 if one is no number
    }
    sum += exp(log_alpha[task[row]]) * log_density[row] - value;
  }
  sum = block_sum(sum, memory);
  if (threadIdx.x == 0) loss[seed] = sum / rows;
}

// gradient (seeds, tasks) by log_alpha of the temperatures' loss, which is linear in the temperature if one is shared
// by all tasks and in its logarithm otherwise; the loss, and the policy's entropy (seeds). A warp has a task.
extern "C" __global__ void __launch_bounds__(512) temperature(
    const REAL* log_alpha, const REAL* log_density, int density_stride, const long long* task, REAL* gradient,
    REAL* loss, REAL* entropy, int rows, int tasks, double target_entropy, int shared) {
  SHARED_MEMORY;
  const long long seed = blockIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  log_alpha += seed * tasks;
  log_density += seed * density_stride;
  task += seed * rows;
  gradient += seed * tasks;
  const REAL target = target_entropy;
  REAL densities = 0, surplus = 0;
#pragma unroll 1
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    densities += log_density[row];
    surplus += log_density[row] + target;
  }
  densities = block_sum(densities, memory);
  surplus = block_sum(surplus, memory);
  if (threadIdx.x == 0) entropy[seed] = -(densities / rows);
  REAL sum = 0;
  for (int own = warp; own < tasks; own += warps) {
    REAL slope = 0;
    for (int row = lane; row < rows && !shared; row += 32)
      if (task[row] == own) slope += log_density[row] + target;
    slope = -((shared ? surplus : warp_sum(slope)) / rows);
    slope *= shared ? exp(log_alpha[own]) : REAL(1);
    if (lane == 0) gradient[own] = slope;
    if (lane == 0) sum += shared ? (own == 0 ? slope : REAL(0)) : log_alpha[own] * slope;
  }
  sum = block_sum(sum, memory);
  if (threadIdx.x == 0) loss[seed] = sum;
}
