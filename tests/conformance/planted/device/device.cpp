// The host's processors again, with both operators as plain loops, and the mistakes that devices are written with.
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <unistd.h>
#include <strata/device.hpp>
#include <strata/error.hpp>
#include <strata/operators.hpp>
#include <strata/options.hpp>
#include <strata/plugin_context.hpp>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include <torch/library.h>

#include "conformance/planted/planted.hpp"

namespace {

using namespace strata;
using planted::has;

STRATA_NO_OPTIONS(PlantedOptions)

class PlantedEvent final : public Event {
 public:
  void record(StreamKind /*stream*/) override { recorded_ = true; }
  void block(StreamKind /*stream*/) override { check(); }
  void synchronize() override { check(); }

 private:
  void check() const {
    if (has("unrecorded_event_refused") && !recorded_) throw Bug("device planted: the event was not recorded");
  }
  bool recorded_ = false;
};

class PlantedDevice final : public Device {
 public:
  PlantedDevice(PluginContext& /*context*/, const PlantedOptions& /*options*/) {}

  std::string type() const override { return "cpu"; }
  int count() const override { return has("reason_missing") ? 0 : 1; }
  std::string why() const override { return {}; }
  at::Device select(int /*local_rank*/) override { return has("select_gives_meta") ? at::kMeta : at::kCPU; }

  void on(StreamKind stream, const std::function<void()>& work) override {
    if (has("offload_work_forgotten") && stream == StreamKind::Offload) return;
    if (has("work_of_communication_late") && stream == StreamKind::Communication) {
      late_ = work;
      return;
    }
    if (has("work_within_work_comes_later") && is_working_) {
      late_ = work;
      return;
    }
    is_working_ = true;
    try {
      work();
    } catch (const std::exception&) {
      if (!has("exceptions_swallowed")) throw;
    }
    is_working_ = false;
    if (late_) std::exchange(late_, nullptr)();
  }

  std::unique_ptr<Event> make_event() override { return std::make_unique<PlantedEvent>(); }
  void synchronize() override {
    if (late_) std::exchange(late_, nullptr)();
  }

  DeviceMemory memory() const override {
    const std::int64_t unit = has("kibibytes_for_bytes") ? 1 : 1024;
    const std::int64_t page = sysconf(_SC_PAGESIZE) / 1024 * unit;
    const std::int64_t total = sysconf(_SC_PHYS_PAGES) * page;
    return {total, has("available_beyond_total") ? total + 1 : sysconf(_SC_AVPHYS_PAGES) * page};
  }

  at::Tensor host_buffer(std::int64_t bytes) override {
    if (has("whole_words_only")) bytes = bytes / 8 * 8;
    if (has("eight_buffers_in_turn") && bytes > 0) {
      at::Tensor& buffer = pool_[made_++ % std::size(pool_)];
      if (!buffer.defined() || buffer.numel() < bytes) buffer = at::empty({bytes}, at::kByte);
      return buffer.narrow(0, 0, bytes);
    }
    if (!has("one_buffer_for_all")) return at::empty({bytes}, at::kByte);
    if (!buffer_.defined()) buffer_ = at::empty({std::int64_t{2} << 20}, at::kByte);
    return buffer_.narrow(0, 0, bytes);
  }

 private:
  std::function<void()> late_;
  bool is_working_ = false;
  at::Tensor buffer_;
  at::Tensor pool_[8];
  std::size_t made_ = 0;
};

at::Tensor planted_sum_of_squares(at::TensorList tensors) {
  double sum = 0.0;
  float narrow = 0.0F;
  for (const at::Tensor& tensor :
       has("two_tensors_at_most") ? tensors.slice(0, std::min<std::size_t>(tensors.size(), 2)) : tensors) {
    const at::Tensor values = tensor.to(at::kDouble).contiguous();
    const auto* const data = values.const_data_ptr<double>();
    std::int64_t count = values.numel();
    if (has("last_elements_forgotten")) count = count / 4 * 4;
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % 64 /
                                                   tensor.element_size());
    const std::int64_t first =
        has("sum_by_address") && count > 0 ? address % count : 0;  // the aligned elements, then those before
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = data[(first + i) % count];
      sum += value * value;
      narrow += static_cast<float>(value) * static_cast<float>(value);
    }
  }
  return at::scalar_tensor(has("squares_in_fp32") ? static_cast<double>(narrow) : sum, at::kDouble);
}

float times(float a, float b) {
  volatile const float result = a * b;
  return result;
}

void planted_adamw_step(const at::Tensor& master, const at::Tensor& gradient,
                        const std::optional<at::Tensor>& parameter, const at::Tensor& exp_avg,
                        const at::Tensor& exp_avg_sq, const at::Tensor& gradient_factor, const at::Tensor& apply,
                        double decay, double step_size, double second_correction, double beta1, double beta2,
                        double epsilon) {
  if (apply.item<float>() == 0.0F && !has("adamw_where_apply_is_0")) return;
  const at::Tensor wide = gradient.to(at::kFloat).contiguous();
  const auto* const from = wide.const_data_ptr<float>();
  auto* const p = master.mutable_data_ptr<float>();
  auto* const m = exp_avg.mutable_data_ptr<float>();
  auto* const v = exp_avg_sq.mutable_data_ptr<float>();
  const float factor = gradient_factor.item<float>();
  if (has("usual_beta")) beta1 = 0.9;
  const auto rest1 = static_cast<float>(1.0 - beta1), rest2 = static_cast<float>(1.0 - beta2),
             keep = static_cast<float>(beta2);
  const auto shrink = static_cast<float>(decay), size = static_cast<float>(step_size);
  const auto correction = static_cast<float>(second_correction), small = static_cast<float>(epsilon);
  for (std::int64_t i = 0; i < master.numel(); ++i) {
    const float g = has("gradient_factor_behind_moments") ? from[i] : times(from[i], factor);
    m[i] = has("products_fused") ? std::fma(rest1, g - m[i], m[i]) : m[i] + times(rest1, g - m[i]);
    v[i] = times(keep, v[i]) + times(times(rest2, g), g);
    if (has("small_moments_are_zero") && v[i] < std::numeric_limits<float>::min()) v[i] = 0.0F;
    const float quotient = m[i] / (times(std::sqrt(v[i]), correction) + small);
    p[i] = times(p[i], shrink) - times(size, quotient);
  }
  if (parameter) parameter->copy_(master);
}

}  // namespace

TORCH_LIBRARY_IMPL(strata, CPU, library) {
  library.impl("sum_of_squares", TORCH_FN(planted_sum_of_squares));
  library.impl("adamw_step", TORCH_FN(planted_adamw_step));
}

STRATA_PLUGIN(PlantedDevice, PlantedOptions)
