// Runs a kernel's own source on the processor: a block is as many threads as it has on a GPU, blocks run one after the
// other. Checks arithmetic, indices and barriers on machines without a GPU; says nothing of memory order or speed.
#pragma once
#include <c10/util/Half.h>

#include <barrier>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)

namespace on_host {

struct Index {
  unsigned x = 0;
};
inline thread_local Index thread_index;
inline thread_local Index block_index;
inline thread_local Index block_extent;
inline thread_local Index grid_extent;
inline thread_local std::barrier<>* meeting = nullptr;

// Kernels without barriers need no threads of their own: `barriers` false runs a block's threads one after the other.
inline void run(unsigned blocks, unsigned threads, bool barriers, const std::function<void()>& kernel) {
  const auto run_thread = [&](unsigned block, unsigned thread, std::barrier<>* where) {
    thread_index.x = thread;
    block_index.x = block;
    block_extent.x = threads;
    grid_extent.x = blocks;
    meeting = where;
    kernel();
  };
  for (unsigned block = 0; block < blocks; ++block) {
    if (!barriers) {
      for (unsigned thread = 0; thread < threads; ++thread) run_thread(block, thread, nullptr);
      continue;
    }
    std::barrier<> where(threads);
    std::vector<std::jthread> running;
    for (unsigned thread = 0; thread < threads; ++thread)
      running.emplace_back([&, thread] { run_thread(block, thread, &where); });
  }
}

}  // namespace on_host

#define threadIdx on_host::thread_index
#define blockIdx on_host::block_index
#define blockDim on_host::block_extent
#define gridDim on_host::grid_extent

inline void __syncthreads() {
  on_host::meeting->arrive_and_wait();
}
inline float __uint_as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline std::uint32_t __float_as_uint(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
inline c10::Half __ushort_as_half(std::uint16_t bits) {
  return {bits, c10::Half::from_bits()};
}
inline std::uint16_t __half_as_ushort(c10::Half value) {
  return value.x;
}
inline float __half2float(c10::Half value) {
  return value;
}
inline c10::Half __float2half_rn(float value) {
  return value;
}
