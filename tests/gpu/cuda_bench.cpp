// cuda_bench [MILLIONS_OF_ELEMENTS]: the operators of device/cuda beside their floor, the bytes they must move over the
// bandwidth of a copy within device memory, and beside libtorch's own ways. One JSON object a line on standard output,
// times in seconds.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/fakes/plugin_context.hpp>
#include <strata/operators.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "plugins/registry.hpp"

namespace {

using namespace strata;
constexpr int warm_up = 3, rounds = 15;

class Bench {
 public:
  explicit Bench(at::Device place) : place_(place), guard_(place.type()) {}

  // The median time of `work`, by events on its stream.
  double seconds(const std::function<void()>& work) const {
    std::vector<double> times;
    for (int round = -warm_up; round < rounds; ++round) {
      c10::Event begin(place_.type(), c10::EventFlag::BACKEND_DEFAULT),
          end(place_.type(), c10::EventFlag::BACKEND_DEFAULT);
      begin.record(guard_.getStream(place_));
      work();
      end.record(guard_.getStream(place_));
      end.synchronize();
      if (round >= 0) times.push_back(begin.elapsedTime(end) / 1000.0);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // `bytes`: what it must at least read and write.
  void report(const std::string& what, double bytes, const std::function<void()>& work) {
    const double time = seconds(work);
    if (bandwidth_ == 0.0) bandwidth_ = bytes / time;  // the first: a copy
    std::printf("{\"what\": \"%s\", \"seconds\": %.9f, \"bytes\": %.0f, \"gb_per_s\": %.1f, \"of_floor\": %.4f}\n",
                what.c_str(), time, bytes, bytes / time / 1e9, bytes / bandwidth_ / time);
    std::fflush(stdout);
  }

 private:
  at::Device place_;
  c10::impl::VirtualGuardImpl guard_;
  double bandwidth_ = 0.0;
};

void run(at::Device place, std::int64_t n) {
  const at::TensorOptions fp32 = at::TensorOptions().dtype(at::kFloat).device(place);
  Bench bench(place);
  const auto elements = static_cast<double>(n);
  const at::Tensor p = at::randn({n}, fp32), g = at::randn({n}, fp32), m = at::zeros({n}, fp32),
                   v = at::zeros({n}, fp32);
  const at::Tensor g16 = g.to(at::kBFloat16), copy = p.to(at::kBFloat16), factor = at::full({}, 0.5, fp32),
                   apply = at::ones({}, fp32);
  const at::Tensor other = at::empty_like(p), steps = at::ones({1}, fp32);
  const operators::AdamwNumbers numbers{0.9999, 1e-3, 1.0, 0.9, 0.95, 1e-8};

  bench.report("copy in device memory", 8 * elements, [&] { other.copy_(p); });
  bench.report("strata::adamw_step, fp32 gradient", 28 * elements,
               [&] { operators::adamw_step(p, g, std::nullopt, m, v, factor, apply, numbers); });
  bench.report("strata::adamw_step, fp32 gradient, bf16 copy", 30 * elements,
               [&] { operators::adamw_step(p, g, copy, m, v, factor, apply, numbers); });
  bench.report("strata::adamw_step, bf16 gradient, bf16 copy", 28 * elements,
               [&] { operators::adamw_step(p, g16, copy, m, v, factor, apply, numbers); });
  const at::Tensor& shifted_base = other;
  const at::Tensor shifted = shifted_base.narrow(0, 1, n - 1);
  bench.report("strata::adamw_step, slices aligned to 4 bytes", 28 * (elements - 1), [&] {
    operators::adamw_step(p.narrow(0, 0, n - 1), shifted, std::nullopt, m.narrow(0, 0, n - 1), v.narrow(0, 0, n - 1),
                          factor, apply, numbers);
  });
  const auto torch_step = [&] {
    at::_fused_adamw_({p}, {g}, {m}, {v}, {}, {steps}, 1e-3, 0.9, 0.95, 0.1, 1e-8, /*amsgrad=*/false,
                      /*maximize=*/false);
  };
  bench.report("libtorch's fused AdamW", 28 * elements, torch_step);
  at::Tensor scaled = g;
  at::Tensor rounded = copy;
  bench.report("libtorch: scale, fused AdamW, bf16 copy", 30 * elements, [&] {
    scaled.mul_(apply);
    torch_step();
    rounded.copy_(p);
  });
  std::vector<at::Tensor> list;  // the lengths of a transformer's layers
  for (std::int64_t at = 0; at < n;) {
    for (const std::int64_t length :
         {std::int64_t{12582912}, std::int64_t{6144}, std::int64_t{4194304}, std::int64_t{2048}}) {
      const std::int64_t part = std::min(length, n - at);
      if (part > 0) list.push_back(g.narrow(0, at, part));
      at += part;
    }
  }
  bench.report("strata::sum_of_squares, " + std::to_string(list.size()) + " tensors", 4 * elements,
               [&] { operators::sum_of_squares(list); });
  bench.report("libtorch's foreach norm, " + std::to_string(list.size()) + " tensors", 4 * elements,
               [&] { at::_foreach_norm(list); });
}

}  // namespace

int main(int count, char** arguments) {
  try {
    plugins::PluginRegistry registry(plugins::search_folders({}));
    OptionValues options;
    options.set("ranks_per_gpu", std::int64_t{1});
    fakes::FakePluginContext context("device/cuda", options);
    const auto device = registry.create<Device>("cuda", context);
    const at::Device place = device->select(0);
    if (!operators::available("adamw_step", place))
      throw EnvironmentError("device/cuda was built without a CUDA compiler");
    run(place, std::int64_t{1000000} * (count > 1 ? std::atoll(arguments[1]) : 400));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 3;
  }
}
