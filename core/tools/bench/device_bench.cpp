// Times a device's operators and host copies. Floor of an operator: one pass over its tensors on the CPU, a copy of as
// many bytes on another device. Floor of a copy: one pass over the same bytes in host memory.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <strata/operators.hpp>

#include "text/size.hpp"
#include "tools/bench/kinds.hpp"
#include "tools/bench/streams.hpp"

namespace strata::bench {

namespace {

struct Operator {
  std::string name;
  std::vector<Stream> streams;
  Work run;
};

// The operators of <strata/operators.hpp> that this device implements.
std::vector<Operator> operators_of(at::Device device, std::int64_t elements) {
  const at::TensorOptions fp32 = at::TensorOptions().device(device);
  const auto filled = [&](double value) { return at::full({elements}, value, fp32); };
  const std::int64_t bytes = 4 * elements;
  std::vector<Operator> found;
  if (operators::available("sum_of_squares", device))
    found.push_back({"sum_of_squares", {{bytes, true, false}}, [tensors = std::vector<at::Tensor>{filled(1e-3)}] {
                       operators::sum_of_squares(tensors);
                     }});
  if (operators::available("adamw_step", device))
    found.push_back({"adamw_step",
                     {{bytes, true, true}, {bytes, true, false}, {bytes, true, true}, {bytes, true, true}},
                     [master = filled(0.5), gradient = filled(1e-3), first = filled(0.0), second = filled(0.0),
                      one = at::full({}, 1.0, fp32)] {
                       operators::adamw_step(master, gradient, std::nullopt, first, second, one, one, {1.0, 1e-4, 1.0});
                     }});
  return found;
}

}  // namespace

std::vector<Row> bench_device(Device& device, const Sizes& sizes, const InterleavedTimer& timer) {
  const at::Device place = device.select(0);
  std::vector<Row> rows;
  const auto done = [&](const Work& work) {
    return [&device, work] {
      work();
      device.synchronize();
    };
  };
  const auto measure = [&](const std::string& name, std::int64_t size, const std::string& floor, double bytes,
                           const Work& plugin, const std::vector<Work>& floors) {
    rows.push_back(
        timer.time({.name = name, .size = text::format_bytes(size), .floor = floor, .work = bytes, .work_unit = "B"},
                   done(plugin), floors));
  };
  for (const std::int64_t size : sizes) {
    for (const Operator& one : operators_of(place, std::max<std::int64_t>(size / 4, 1))) {
      const Streams floor(one.streams);
      if (place.is_cpu()) {
        measure(one.name, size, floor.name(), floor.bytes(), one.run, floor.passes());
        continue;
      }
      const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(place);
      const auto half = std::max<std::int64_t>(static_cast<std::int64_t>(floor.bytes() / 2), 1);
      const at::Tensor from = at::full({half}, 1, options), to = at::empty({half}, options);
      measure(one.name, size, "a copy on the device of as many bytes", floor.bytes(), one.run,
              {done([&] { to.copy_(from, true); })});
    }
    const at::Tensor there = at::full({size}, 1, at::TensorOptions().dtype(at::kByte).device(place));
    const at::Tensor here = device.host_buffer(size).narrow(0, 0, size);
    const Streams copy = Streams::of_copy(size);
    const auto bytes = static_cast<double>(size);
    measure(
        "copy to a host buffer", size, copy.name(), bytes, [&] { here.copy_(there, true); }, copy.passes());
    measure(
        "copy from a host buffer", size, copy.name(), bytes, [&] { there.copy_(here, true); }, copy.passes());
  }
  return rows;
}

}  // namespace strata::bench
