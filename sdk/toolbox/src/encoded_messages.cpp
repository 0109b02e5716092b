#include <ATen/ops/maximum.h>
#include <strata/toolbox/eight_bits.hpp>
#include <strata/toolbox/encoded_messages.hpp>

#include <algorithm>
#include <limits>

namespace strata::toolbox {

std::vector<const ParameterSpan*> encoded_weights(const FlatParameterInfo& flat, const WeightCode& code) {
  std::vector<const ParameterSpan*> weights;
  for (const ParameterSpan& span : flat.parameters)
    if (code.travels(span.info)) weights.push_back(&span);
  return weights;
}

EncodedMessages::EncodedMessages(const FlatParameterInfo& flat, const Ranges& ranges, const WeightCode& code,
                                 at::Tensor magnitudes)
    : RangeMessages(ranges), code_(code), dtype_(flat.dtypes.parameter), magnitudes_(std::move(magnitudes)) {
  const std::vector<const ParameterSpan*> weights = encoded_weights(flat, code);
  for (const auto& [first, last] : ranges) {
    std::vector<Run> plain, encoded;
    for (const ParameterSpan& span : flat.parameters) {
      const std::int64_t begin = std::max(first, span.offset), end = std::min(last, span.offset + span.elements());
      if (begin >= end) continue;
      const auto weight = std::ranges::find(weights, &span);
      if (weight == weights.end())
        plain.push_back({begin - first, end - begin});
      else
        encoded.push_back({begin - first, end - begin, 0, weight - weights.begin()});
    }
    std::int64_t bytes = 0;
    const auto place = [&](std::vector<Run>& runs, std::int64_t element) {
      for (Run& run : runs) run.byte = std::exchange(bytes, bytes + run.elements * element);
    };
    place(plain, static_cast<std::int64_t>(c10::elementSize(dtype_)));
    place(encoded, 1);
    bytes_ = std::max(bytes_, (bytes + 3) / 4 * 4);
    plain.insert(plain.end(), encoded.begin(), encoded.end());
    runs_.push_back(std::move(plain));
  }
}

// NaN becomes infinite, which every maximum over ranks keeps.
void EncodedMessages::measure(int range, const at::Tensor& values) const {
  if (values.is_meta()) return;
  constexpr double infinite = std::numeric_limits<double>::infinity();
  for (const Run& run : runs(range)) {
    if (run.weight == none) continue;
    const at::Tensor largest = magnitudes_.select(0, run.weight);
    const at::Tensor here = largest_magnitude(values.narrow(0, run.begin, run.elements));
    largest.copy_(at::maximum(largest, here).nan_to_num(infinite, infinite));
  }
}

at::Tensor EncodedMessages::part(const Run& run, const at::Tensor& message) const {
  if (run.weight != none) return message.narrow(0, run.byte, run.elements);
  return message.narrow(0, run.byte, run.elements * static_cast<std::int64_t>(c10::elementSize(dtype_))).view(dtype_);
}

void EncodedMessages::encode(int range, const at::Tensor& values, const at::Tensor& message) const {
  for (const Run& run : runs(range)) {
    const at::Tensor from = values.narrow(0, run.begin, run.elements), to = part(run, message);
    if (run.weight == none)
      to.copy_(from);
    else
      code_.encode(from, magnitudes_.select(0, run.weight), to);
  }
}

void EncodedMessages::decode(int range, const at::Tensor& message, const at::Tensor& values) const {
  for (const Run& run : runs(range)) {
    const at::Tensor from = part(run, message), to = values.narrow(0, run.begin, run.elements);
    if (run.weight == none)
      to.copy_(from);
    else
      code_.decode(from, magnitudes_.select(0, run.weight), to);
  }
}

}  // namespace strata::toolbox
