// A squashed Gaussian policy: from the outputs of the actor's last layer to actions, and back.
// Outputs are (seeds, 2 rows, heads, 2 actions), of each head means and then log deviations, without their bias.
#include "common.cuh"

constexpr REAL LOG_SCALE = 2.305232894324517;  // log(2 pi) / 2 + 2 log(2), of the log-density of each number

// A log deviation within its bounds, and what a change of it is multiplied by.
struct LogDeviation {
  REAL value, slope;
  __device__ LogDeviation(REAL given, REAL low, REAL high, bool tanh_bounds) {
    if (tanh_bounds) {
      const REAL bent = tanh(given), half = REAL(0.5) * (high - low);
      value = low + half * (1 + bent);
      slope = half * (1 - bent * bent);
    } else {
      value = given < low ? low : given > high ? high : given;  // what is no number stays so
      slope = given >= low && given <= high ? REAL(1) : REAL(0);
    }
  }
};

__device__ inline REAL softplus(REAL value) { return value > 20 ? value : log1p(exp(value)); }

// Writes the actions into the last columns of proposed (seeds, rows, width), or following for the second half of
// the rows, and the log-densities (seeds, 2 rows). A thread has a row.
extern "C" __global__ void __launch_bounds__(64)
    act(const REAL* outputs, const REAL* bias, const REAL* noise, const long long* task, REAL* proposed,
        REAL* following, REAL* log_density, int rows, int actions, int heads, int width, double low, double high,
        int tanh_bounds) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x, seed = blockIdx.y;
  if (row >= 2 * rows) return;
  const int own = row < rows ? row : row - rows;
  const long long place = static_cast<long long>(seed) * rows + own;
  const long long drawn = static_cast<long long>(seed) * 2 * rows + row;
  const int first = head_of(task, place, heads) * 2 * actions, outputs_of_row = heads * 2 * actions;
  outputs += drawn * outputs_of_row + first;
  bias += static_cast<long long>(seed) * outputs_of_row + first;
  noise += drawn * actions;
  REAL* action = (row < rows ? proposed : following) + place * width + width - actions;
  REAL sum = 0;
#pragma unroll 1
  for (int i = 0; i < actions; ++i) {
    const LogDeviation deviation(outputs[actions + i] + bias[actions + i], low, high, tanh_bounds);
    const REAL raw = outputs[i] + bias[i] + exp(deviation.value) * noise[i];
    const REAL gaussian = REAL(-0.5) * (noise[i] * noise[i]) - deviation.value;
    sum += gaussian + 2 * (raw + softplus(-2 * raw));
    action[i] = tanh(raw);
  }
  log_density[drawn] = sum - actions * LOG_SCALE;
}

// The gradient (seeds, rows, heads, 2 actions) by the outputs for the observations, of the mean over the rows of
// alpha log_density - value, where action_gradient (members, rows, actions) has the values' part of it; and its sums
// over the rows. A block has one number of a seed's actions in one head.
extern "C" __global__ void __launch_bounds__(512) act_back(
    const REAL* action_gradient, const REAL* outputs, const REAL* bias, const REAL* noise, const long long* task,
    const REAL* log_alpha, REAL* gradient, REAL* bias_gradient, int rows, int actions, int members, int tasks,
    double low, double high, int tanh_bounds) {
  SHARED_MEMORY;
  const int number = blockIdx.x, head = blockIdx.y, heads = gridDim.y, seed = blockIdx.z;
  const int width = heads * 2 * actions, mean = head * 2 * actions + number, log_deviation = mean + actions;
  const long long place = static_cast<long long>(seed) * rows;
  task += place;
  log_alpha += seed * tasks;
  action_gradient += place * members * actions + number;
  outputs += 2 * place * width;
  noise += 2 * place * actions + number;
  gradient += place * width;
  bias += static_cast<long long>(seed) * width;
  bias_gradient += static_cast<long long>(seed) * width;
  REAL raw_sum = 0, deviation_sum = 0;
#pragma unroll 1
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    const long long first = static_cast<long long>(row) * width;
    REAL by_raw = 0, by_deviation = 0;
    if (head_of(task, row, heads) == head) {
      const LogDeviation deviation(outputs[first + log_deviation] + bias[log_deviation], low, high, tanh_bounds);
      const REAL shift = exp(deviation.value) * noise[static_cast<long long>(row) * actions];
      const REAL action = tanh(outputs[first + mean] + bias[mean] + shift);
      const REAL by_density = exp(log_alpha[task[row]]) / rows;
      REAL by_action = 0;
  #pragma unroll 1
    for (int member = 0; member < members; ++member)
        by_action += action_gradient[(static_cast<long long>(member) * rows + row) * actions];
      // the log-density is -log_deviation - log(1 - action^2), beside what does not change
      by_raw = by_density * 2 * action + by_action * (1 - action * action);
      by_deviation = deviation.slope * (by_raw * shift - by_density);
    }
    gradient[first + mean] = by_raw;
    gradient[first + log_deviation] = by_deviation;
    raw_sum += by_raw;
    deviation_sum += by_deviation;
  }
  raw_sum = block_sum(raw_sum, memory);
  deviation_sum = block_sum(deviation_sum, memory);
  if (threadIdx.x > 0) return;
  bias_gradient[mean] = raw_sum;
  bias_gradient[log_deviation] = deviation_sum;
}
