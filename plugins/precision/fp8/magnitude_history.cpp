#include "magnitude_history.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace strata::fp8 {

namespace {
constexpr std::size_t operands = 3;

template <typename Number>
void write(StateWriter& writer, std::string_view name, const std::vector<Number>& numbers) {
  writer.bytes(name, std::as_bytes(std::span(numbers)));
}

template <typename Number>
std::vector<Number> read(StateReader& reader, std::string_view name) {
  const std::vector<std::byte> bytes = reader.bytes(name);
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  if (!numbers.empty()) std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}
}  // namespace

void MagnitudeHistory::attach(const std::vector<LayerInfo>& layers, StateStore& store) {
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.shape.size() == 2) first_.emplace(parameter.name, operands * first_.size());
  history_.resize(operands * first_.size());
  const auto make = [&](const char* what) {
    return store.allocate(Category::Staging, Tier::Device, std::string("8-bit operands: ") + what,
                          static_cast<std::int64_t>(history_.size()), at::kFloat);
  };
  maxima_ = make("largest magnitudes");
  scales_ = make("scales");
}

at::Tensor MagnitudeHistory::scale(const at::Tensor& magnitude, const ParameterInfo& weight, Operand operand) {
  const auto found = first_.find(weight.name);
  if (found == first_.end()) return power_of_two(magnitude, format_of(operand));  // before attach()
  const std::size_t number = found->second + static_cast<std::size_t>(operand);
  const at::Tensor largest = maxima_.select(0, static_cast<std::int64_t>(number));
  largest.copy_(at::maximum(largest, magnitude));
  if (history_[number].empty()) return power_of_two(magnitude, format_of(operand));
  return scales_.select(0, static_cast<std::int64_t>(number)).add(magnitude.mul(0.0));
}

void MagnitudeHistory::step_ended() {
  if (!maxima_.defined()) return;
  const at::Tensor host = maxima_.cpu();
  for (std::size_t number = 0; number < history_.size(); ++number) {
    const float magnitude = host.const_data_ptr<float>()[number];
    std::vector<float>& history = history_[number];
    if (magnitude <= 0.0F || !std::isfinite(magnitude)) continue;
    history.push_back(magnitude);
    if (history.size() > steps_) history.erase(history.begin());
  }
  set_scales();
}

void MagnitudeHistory::set_scales() {
  const at::Tensor largest = at::zeros({static_cast<std::int64_t>(first_.size()), operands});
  for (std::size_t number = 0; number < history_.size(); ++number)
    for (const float magnitude : history_[number])
      largest.mutable_data_ptr<float>()[number] = std::max(largest.const_data_ptr<float>()[number], magnitude);
  std::vector<at::Tensor> scales;
  for (const Operand operand : {Operand::Input, Operand::Weight, Operand::Gradient})
    scales.push_back(power_of_two(largest.narrow(1, static_cast<std::int64_t>(operand), 1), format_of(operand)));
  scales_.copy_(at::cat(scales, 1).view({-1}));
}

// In the order in which the numbers lie.
std::string MagnitudeHistory::names() const {
  std::vector<std::string_view> by_number(first_.size());
  for (const auto& [name, first] : first_) by_number[first / operands] = name;
  std::string text;
  for (const std::string_view name : by_number) text.append(name).append("\n");
  return text;
}

void MagnitudeHistory::save(StateWriter& writer) const {
  std::vector<std::int32_t> steps;
  std::vector<float> magnitudes;
  for (const std::vector<float>& history : history_) {
    steps.push_back(static_cast<std::int32_t>(history.size()));
    magnitudes.insert(magnitudes.end(), history.begin(), history.end());
  }
  writer.text("magnitudes_of", names());
  write(writer, "magnitude_steps", steps);
  write(writer, "magnitudes", magnitudes);
}

void MagnitudeHistory::load(StateReader& reader) {
  if (reader.text("magnitudes_of") != names())
    throw UserError(
        "the checkpoint holds the magnitudes of other weights than this model has; resume with the model "
        "of that run, or set scaling: current");
  const std::vector<std::int32_t> steps = read<std::int32_t>(reader, "magnitude_steps");
  const std::vector<float> magnitudes = read<float>(reader, "magnitudes");
  std::size_t at = 0;
  for (std::size_t number = 0; number < history_.size() && number < steps.size(); ++number) {
    const std::size_t end = std::min(at + static_cast<std::size_t>(std::max(steps[number], 0)), magnitudes.size());
    const std::size_t kept = std::min(end - at, steps_);  // this run may look back less far
    history_[number].assign(magnitudes.begin() + static_cast<std::ptrdiff_t>(end - kept),
                            magnitudes.begin() + static_cast<std::ptrdiff_t>(end));
    at = end;
  }
  if (scales_.defined()) set_scales();
}

}  // namespace strata::fp8
