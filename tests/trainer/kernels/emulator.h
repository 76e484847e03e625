// Lets g++ compile CUDA sources, and runs their kernels on the processor as unkindly as a GPU may.
//
// The threads of a block are fibres. Between two barriers its warps run one after the other, in a random order,
// and so do a warp's threads as far as they get without each other: what lacks a barrier reads too early or too
// late. So do the blocks, of which none sees another at work. Shared memory is as long as the launch says, full of
// NaN at first, with a rim that nothing may write to.
#pragma once
#include <math.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __shared__
#define __launch_bounds__(...)
#define __align__(size) __attribute__((aligned(size)))
#define __syncthreads() emulator::barrier(__FILE__, __LINE__)
#define __syncthreads_or(value) emulator::any_of_block(value, __FILE__, __LINE__)
#define __threadfence()

using std::max;
using std::min;

struct Place {
  unsigned x = 1, y = 1, z = 1;
};
static Place threadIdx, blockIdx, blockDim, gridDim;

namespace emulator {

constexpr std::size_t ROOM = 49152, RIM = 4096, STACK = 16384 + 320;  // no power of two, or all would share lines of a cache
constexpr int WARP = 32;
enum class Waits { nothing, barrier, lanes, over };

struct Thread {
  ucontext_t context;  // it begins in
  jmp_buf place_in_it;  // it goes on at, without a system call
  bool begun;
  Place place;
  Waits waits;
  const char* file;  // of the barrier it waits at
  int line;
  double given[2] = {0, 0};  // to the other lanes, by turns: one lane may be a step ahead of another
  int turn;
  bool said;
};

static std::vector<Thread> threads;
static std::vector<char> stacks;
static Thread* current;
static jmp_buf scheduler;
static std::string fault;
static void (*body)();

inline void wait(Waits what) {
  Thread* own = current;
  own->waits = what;
  if (!_setjmp(own->place_in_it)) _longjmp(scheduler, 1);
}

inline void barrier(const char* file, int line) {
  current->file = file;
  current->line = line;
  wait(Waits::barrier);
}

inline bool any_of_block(bool value, const char* file, int line) {
  current->said = value;
  barrier(file, line);
  const bool any = std::any_of(threads.begin(), threads.end(), [](const Thread& thread) { return thread.said; });
  barrier(file, line);
  return any;
}

inline void run_thread() {
  body();
  wait(Waits::over);
}

inline void resume(Thread& thread) {
  current = &thread;
  threadIdx = thread.place;
  if (_setjmp(scheduler)) return;
  if (thread.begun) _longjmp(thread.place_in_it, 1);
  thread.begun = true;
  setcontext(&thread.context);
}

// Runs threads of a warp until each of them is at a barrier, or over, or waits in vain.
inline void run_warp(std::size_t* begin, std::size_t* end, std::mt19937& random) {
  auto waits = [](std::size_t i) { return threads[i].waits == Waits::lanes; };
  for (;;) {
    std::shuffle(begin, end, random);
    for (std::size_t* i = begin; i < end; ++i)
      if (threads[*i].waits == Waits::nothing) resume(threads[*i]);
    if (!std::all_of(begin, end, waits)) return;
    std::for_each(begin, end, [](std::size_t i) { threads[i].waits = Waits::nothing; });
  }
}

// Whether all threads stand at one barrier, which they then leave. Else the block is over, or stuck.
inline bool release_block() {
  auto over = [](const Thread& thread) { return thread.waits == Waits::over; };
  if (std::all_of(threads.begin(), threads.end(), over)) return false;
  const Thread& first = threads.front();
  auto meets = [&](const Thread& thread) { return thread.waits == Waits::barrier && thread.file == first.file && thread.line == first.line; };
  if (!std::all_of(threads.begin(), threads.end(), meets)) {
    auto at = std::find_if(threads.begin(), threads.end(), [](const Thread& t) { return t.waits == Waits::barrier; });
    fault = at == threads.end() ? "lanes of a warp did not all exchange numbers"
                                : "threads did not all come to the barrier in line " + std::to_string(at->line) + " of " + at->file;
    return false;
  }
  std::for_each(threads.begin(), threads.end(), [](Thread& thread) { thread.waits = Waits::nothing; });
  return true;
}

inline void run_block(std::mt19937& random) {
  const std::size_t size = blockDim.x * blockDim.y * blockDim.z;
  threads.resize(size);
  if (stacks.size() < size * STACK) stacks.resize(size * STACK);
  for (std::size_t i = 0; i < size; ++i) {
    Thread& thread = threads[i];
    thread.place = {unsigned(i % blockDim.x), unsigned(i / blockDim.x % blockDim.y), unsigned(i / blockDim.x / blockDim.y)};
    thread.waits = Waits::nothing;
    thread.turn = 0;
    thread.begun = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = stacks.data() + i * STACK;
    thread.context.uc_stack.ss_size = STACK;
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, run_thread, 0);
  }
  std::vector<std::size_t> lanes(size), order((size + WARP - 1) / WARP);
  std::iota(lanes.begin(), lanes.end(), 0);
  std::iota(order.begin(), order.end(), 0);
  do {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t warp : order)
      run_warp(&lanes[warp * WARP], lanes.data() + std::min(size, (warp + 1) * WARP), random);
  } while (release_block());
}

template <typename Value>
Value exchange(Value value, int distance) {
  Thread* own = current;
  const int index = own - threads.data(), other = index ^ distance;
  const int turn = own->turn++ % 2;
  own->given[turn] = value;
  wait(Waits::lanes);
  return threads[other].given[turn];
}

template <typename... Parameters, std::size_t... Numbers>
std::string run(
    void (*kernel)(Parameters...), void** arguments, const unsigned* grid, const unsigned* block, char* memory,
    std::size_t shared, unsigned seed, std::index_sequence<Numbers...>) {
  static std::tuple<std::decay_t<Parameters>...> values;
  static void (*called)(Parameters...);
  values = {*static_cast<std::decay_t<Parameters>*>(arguments[Numbers])...};
  called = kernel;
  body = [] { std::apply(called, values); };
  gridDim = {grid[0], grid[1], grid[2]};
  blockDim = {block[0], block[1], block[2]};
  fault.clear();
  if (shared > ROOM) return "asks for more shared memory than there is";
  std::mt19937 random(seed);
  std::vector<unsigned> order(grid[0] * grid[1] * grid[2]);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<char> rim(RIM + ROOM - shared, -1);
  for (unsigned i : order) {
    blockIdx = {i % grid[0], i / grid[0] % grid[1], i / grid[0] / grid[1]};
    std::memset(memory, -1, ROOM + RIM);
    run_block(random);
    if (std::memcmp(memory + shared, rim.data(), rim.size())) fault = "wrote past the end of shared memory";
    if (!fault.empty()) break;
  }
  return fault;
}

template <typename Type>
constexpr const char* kind = "void*";  // the elements of tables
template <>
constexpr const char* kind<int> = "int";
template <>
constexpr const char* kind<double> = "double";
template <>
constexpr const char* kind<float*> = "float*";
template <>
constexpr const char* kind<double*> = "double*";
template <>
constexpr const char* kind<long long*> = "long long*";
template <>
constexpr const char* kind<int*> = "int*";

template <typename Type>
constexpr const char* kind<const Type*> = kind<Type*>;

template <typename... Parameters>
std::string kinds(void (*)(Parameters...)) {
  std::string names;
  ((names += (names.empty() ? "" : ",") + std::string(kind<Parameters>)), ...);
  return names;
}

template <typename... Parameters>
std::string run(
    void (*kernel)(Parameters...), void** arguments, const unsigned* grid, const unsigned* block, char* memory,
    std::size_t shared, unsigned seed) {
  return run(kernel, arguments, grid, block, memory, shared, seed, std::index_sequence_for<Parameters...>());
}

}  // namespace emulator

template <typename Value>
Value __shfl_xor_sync(unsigned, Value value, int distance) {
  return emulator::exchange(value, distance);
}

template <typename Integer>
Integer atomicAdd(Integer* address, Integer value) {
  static_assert(std::is_integral_v<Integer>, "the order of threads would show");
  const Integer before = *address;
  *address += value;
  return before;
}

#define EMULATED(name)                                                                                   \
  extern "C" const char* parameters_##name() {                                                          \
    static const std::string kinds = emulator::kinds(&name);                                            \
    return kinds.c_str();                                                                                \
  }                                                                                                      \
  extern "C" const char* run_##name(                                                                     \
      void** arguments, const unsigned* grid, const unsigned* block, std::size_t shared, unsigned seed) { \
    static std::string fault;                                                                            \
    fault = emulator::run(&name, arguments, grid, block, reinterpret_cast<char*>(memory), shared, seed);  \
    return fault.c_str();                                                                                \
  }
