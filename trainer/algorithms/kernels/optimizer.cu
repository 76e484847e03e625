// Optimisers of several seeds, whose tensors are cut into chunks, and a table tells where those are.
// The second dimension of a grid is the seeds'; each has as many chunks.
#include "common.cuh"
#include "last_block.cuh"

struct Chunk {
  REAL *parameter, *gradient, *first_moment, *second_moment;
  const float* counter;  // of the parameter's steps
  long long size;        // numbers
};

// Whether packs of four may be moved between these places.
__device__ inline bool aligned(long long size, const void* a, const void* b, const void* c, const void* d) {
  const auto bits = reinterpret_cast<unsigned long long>(a) | reinterpret_cast<unsigned long long>(b) |
                    reinterpret_cast<unsigned long long>(c) | reinterpret_cast<unsigned long long>(d);
  return size % 4 == 0 && bits % sizeof(Pack<4>) == 0;
}

template <int N>
__device__ REAL squares_of(const REAL* gradient, long long size) {
  REAL sum = 0;
#pragma unroll 4
  for (long long place = threadIdx.x * N; place < size; place += blockDim.x * N) {
    const Pack<N> own = load<N>(gradient + place);
    for (int i = 0; i < N; ++i) sum += own.at[i] * own.at[i];
  }
  return sum;
}

// norm (seeds) of all gradients together; blocked (seeds) = 1 if it or a loss (seeds) is not finite, or if the
// seed was blocked before; scale (seeds) = what gradients are divided by for a norm of at most max_norm.
// Losses and blocked_before may be missing. parts (seeds, chunks) are sums of squares, added in one order.
extern "C" __global__ void __launch_bounds__(256) gradient_norm(
    const Chunk* chunks, REAL* parts, int* tickets, const REAL* loss, const REAL* other_loss,
    const float* blocked_before, REAL* result, float* blocked, float* scale, double max_norm) {
  SHARED_MEMORY;
  const int seed = blockIdx.y, count = gridDim.x;
  const Chunk& own = chunks[seed * count + blockIdx.x];
  REAL sum = aligned(own.size, own.gradient, nullptr, nullptr, nullptr) ? squares_of<4>(own.gradient, own.size)
                                                                         : squares_of<1>(own.gradient, own.size);
  sum = block_sum(sum, memory);
  if (threadIdx.x == 0) parts[seed * count + blockIdx.x] = sum;
  if (!is_last_block(tickets + seed)) return;
  sum = 0;
  for (int part = threadIdx.x; part < count; part += blockDim.x) sum += parts[seed * count + part];
  sum = block_sum(sum, memory);
  if (threadIdx.x > 0) return;
  const REAL length = sqrt(sum), total = length + (loss ? loss[seed] : 0) + (other_loss ? other_loss[seed] : 0);
  const bool before = blocked_before && blocked_before[seed] != 0;
  result[seed] = length;
  blocked[seed] = before || total - total != 0 ? 1.0f : 0.0f;
  scale[seed] = max_norm > 0 ? max(static_cast<float>(length / static_cast<REAL>(max_norm)), 1.0f) : 1.0f;
}

// What a step of Adam depends on.
struct Step {
  REAL scale, shrink, beta1, beta2, size, correction, eps;
};

template <int N>
__device__ void adam_of(const Chunk& chunk, const Step& step) {
#pragma unroll 2
  for (long long place = threadIdx.x * N; place < chunk.size; place += blockDim.x * N) {
    Pack<N> parameter = load<N>(chunk.parameter + place), first = load<N>(chunk.first_moment + place);
    Pack<N> second = load<N>(chunk.second_moment + place), gradient = load<N>(chunk.gradient + place);
    for (int i = 0; i < N; ++i) {
      const REAL own = gradient.at[i] / step.scale, square = own * own;
      parameter.at[i] -= step.shrink * parameter.at[i];
      first.at[i] = fma(step.beta1, first.at[i], fma(-step.beta1, own, own));
      second.at[i] = fma(step.beta2, second.at[i], fma(-step.beta2, square, square));
      const REAL deviation = sqrt(second.at[i]) / step.correction + step.eps;
      parameter.at[i] -= step.size * first.at[i] / deviation;
    }
    store<N>(chunk.parameter + place, parameter);
    store<N>(chunk.first_moment + place, first);
    store<N>(chunk.second_moment + place, second);
  }
}

// A step of Adam with gradients divided by scale (seeds), which may be missing, for each seed that is not blocked
// (seeds): as PyTorch's fused kernel takes it, but that 1 - beta^t is as exact for small t, which takes the
// logarithms of the decays. Weight decay is AdamW's. The counters (seeds, parameters) advance once all have read them.
extern "C" __global__ void __launch_bounds__(256)
    adam(const Chunk* chunks, int* tickets, float* const* counters, int parameters, const float* blocked, const float* scale, double learning_rate,
         double beta1, double log_beta1, double beta2, double log_beta2, double weight_decay, double eps) {
  const int seed = blockIdx.y;
  if (blocked[seed] != 0) return;
  const Chunk own = chunks[seed * gridDim.x + blockIdx.x];
  const double now = static_cast<double>(*own.counter) + 1;
  Step step;
  step.scale = scale ? scale[seed] : 1.0f;
  step.shrink = learning_rate * weight_decay;
  step.beta1 = beta1;
  step.beta2 = beta2;
  step.size = static_cast<REAL>(learning_rate) / -expm1(static_cast<REAL>(now * log_beta1));
  step.correction = sqrt(-expm1(static_cast<REAL>(now * log_beta2)));
  step.eps = eps;
  if (is_last_block(tickets + seed))
    for (int parameter = threadIdx.x; parameter < parameters; parameter += blockDim.x)
      *counters[seed * parameters + parameter] += 1;
  if (aligned(own.size, own.parameter, own.gradient, own.first_moment, own.second_moment))
    adam_of<4>(own, step);
  else
    adam_of<1>(own, step);
}

struct Pair {
  REAL* target;
  const REAL* source;
  long long size;
};

template <int N>
__device__ void polyak_of(const Pair& pair, REAL tau) {
#pragma unroll 4
  for (long long place = threadIdx.x * N; place < pair.size; place += blockDim.x * N) {
    Pack<N> target = load<N>(pair.target + place);
    const Pack<N> source = load<N>(pair.source + place);
    for (int i = 0; i < N; ++i) target.at[i] -= tau * (target.at[i] - source.at[i]);
    store<N>(pair.target + place, target);
  }
}

// target += tau (source - target), for each seed that is not blocked (seeds).
extern "C" __global__ void __launch_bounds__(256) polyak(const Pair* pairs, const float* blocked, double tau) {
  if (blocked[blockIdx.y] != 0) return;
  const Pair own = pairs[blockIdx.y * gridDim.x + blockIdx.x];
  if (aligned(own.size, own.target, own.source, nullptr, nullptr))
    polyak_of<4>(own, tau);
  else
    polyak_of<1>(own, tau);
}

// Counts blocked (seeds) updates in skipped (seeds, 2): in all, and in a row.
extern "C" __global__ void __launch_bounds__(64) count_skipped(long long* skipped, const float* blocked, int seeds) {
  const int seed = blockIdx.x * blockDim.x + threadIdx.x;
  if (seed >= seeds) return;
  const bool now = blocked[seed] != 0;
  skipped[2 * seed] += now;
  skipped[2 * seed + 1] = now ? skipped[2 * seed + 1] + 1 : 0;
}
