#pragma once
#include <strata/toolbox/wire_messages.hpp>
#include <strata/weight_code.hpp>

#include <cstdint>
#include <vector>

namespace strata::toolbox {

// Returns the parameters of a flat parameter that travel by a WeightCode, in order.
std::vector<const ParameterSpan*> encoded_weights(const FlatParameterInfo& flat, const WeightCode& code);

// Messages in which encoded_weights() take one byte per element, after all other elements, unchanged. No padding.
class EncodedMessages final : public RangeMessages {
 public:
  // Makes the messages. `magnitudes`: fp32, one per encoded weight, equal on all ranks before encode() and decode().
  EncodedMessages(const FlatParameterInfo& flat, const Ranges& ranges, const WeightCode& code, at::Tensor magnitudes);

  // Raises `magnitudes` to the magnitudes of the values.
  void measure(int range, const at::Tensor& values) const override;
  void encode(int range, const at::Tensor& values, const at::Tensor& message) const override;
  void decode(int range, const at::Tensor& message, const at::Tensor& values) const override;

 private:
  // Neighbours in a range.
  struct Run {
    std::int64_t begin = 0;  // elements from the range's begin
    std::int64_t elements = 0;
    std::int64_t byte = 0;       // byte of the message
    std::int64_t weight = none;  // index in `magnitudes`; none: not encoded
  };
  static constexpr std::int64_t none = -1;
  const std::vector<Run>& runs(int range) const { return runs_[static_cast<std::size_t>(range)]; }
  at::Tensor part(const Run& run, const at::Tensor& message) const;

  const WeightCode& code_;
  at::ScalarType dtype_;
  at::Tensor magnitudes_;
  std::vector<std::vector<Run>> runs_;  // by range
};

}  // namespace strata::toolbox
