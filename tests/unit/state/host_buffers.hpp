#pragma once
#include <strata/flat_parameter.hpp>
#include <strata/partitioner.hpp>
#include <strata/plain_device.hpp>

#include "memory/buffers.hpp"

// Buffers of one rank whose device is the processor, or, if not `on_host`, is taken for one with memory of its own.
struct HostBuffers {
  explicit HostBuffers(const strata::memory::MemoryPlan& plan = {}, bool on_host = true)
      : buffers(store, device, plan, on_host) {}

  // A slice with its values and its gradient, each in a buffer of its own.
  strata::Slice slice(strata::FlatParameter& flat, std::int64_t begin, std::int64_t end, std::int64_t counted_begin,
                      std::int64_t counted_end) {
    const strata::FlatParameterInfo& info = flat.info();
    const auto range = [&](strata::Category category, at::ScalarType dtype) {
      return strata::BufferRange{&buffers.make({category, info.id}, info.name, end - begin, dtype), 0, end - begin};
    };
    return {&flat,
            begin,
            end,
            range(strata::Category::Parameter, info.dtypes.parameter),
            range(strata::Category::Gradient, info.dtypes.gradient),
            counted_begin,
            counted_end};
  }

  strata::StateStore store{at::kCPU};
  strata::PlainDevice device{at::kCPU};
  strata::memory::Buffers buffers;
};
