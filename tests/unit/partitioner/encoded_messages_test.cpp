// Messages in which some weights travel by a WeightCode and all else as it is.
#include <ATen/ATen.h>
#include <strata/toolbox/encoded_messages.hpp>

#include <cmath>
#include <limits>

#include "compressed_messages.hpp"

#include "catch.hpp"

using namespace strata;
using toolbox::EncodedMessages;
using toolbox::RangeMessages;

namespace {

// Of matrices: -127 to 127 times the 127th of the largest.
struct SevenBits final : WeightCode {
  bool is_wanted() const override { return true; }
  bool travels(const ParameterInfo& weight) const override { return weight.shape.size() == 2; }
  void comes_decoded(const ParameterInfo&) override {}
  void encode(const at::Tensor& values, const at::Tensor& magnitude, const at::Tensor& bytes) const override {
    bytes.copy_(values.to(at::kFloat).mul(127.0).div(magnitude).round().add(128.0));
  }
  void decode(const at::Tensor& bytes, const at::Tensor& magnitude, const at::Tensor& values) const override {
    values.copy_(bytes.to(at::kFloat).sub(128.0).mul(magnitude).div(127.0));
  }
};

// A norm, a matrix, a bias and another matrix: 3 + 60 + 5 + 42.
FlatParameterInfo four_parameters(at::ScalarType dtype) {
  FlatParameterInfo info = fakes::flat_parameter_info(0, 110, {dtype, at::kFloat, at::kFloat, at::kFloat});
  info.parameters.clear();
  std::int64_t offset = 0;
  for (const std::vector<std::int64_t>& shape : std::vector<std::vector<std::int64_t>>{{3}, {6, 10}, {5}, {7, 6}}) {
    ParameterSpan& span = info.parameters.emplace_back();
    span.info.name = "at " + std::to_string(offset);
    span.info.shape = shape;
    span.offset = offset;
    offset += span.elements();
  }
  return info;
}

}  // namespace

TEST_CASE("encoded parts are sent in bytes, and the others bit for bit") {
  const SevenBits code;
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16})
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(dtype, ranks);
      const FlatParameterInfo info = four_parameters(dtype);
      REQUIRE(toolbox::encoded_weights(info, code).size() == 2);
      const ShardLayout layout(info.elements, 0, ranks, any_size);
      REQUIRE(layout.pieces().size() == 1);
      const auto ranges = RangeMessages::ranges_of(layout.pieces()[0], ranks);
      const at::Tensor magnitudes = at::zeros({2});
      const EncodedMessages messages(info, ranges, code, magnitudes);

      // The longest message: an element of a matrix is a byte, and all others are as long as their dtype.
      std::int64_t longest = 0;
      for (const auto& [begin, end] : ranges) {
        std::int64_t bytes = 0;
        for (std::int64_t element = begin; element < std::min(end, info.elements); ++element)
          bytes += (element >= 3 && element < 63) || element >= 68 ? 1 : static_cast<std::int64_t>(elementSize(dtype));
        longest = std::max(longest, (bytes + 3) / 4 * 4);
      }
      CHECK(messages.bytes() == longest);

      const at::Tensor values = at::zeros({layout.whole()}, dtype);
      values.narrow(0, 0, info.elements).copy_(drawn(0.3, info.elements));
      const at::Tensor all = at::zeros({ranks * messages.bytes()}, at::kByte);
      for (int rank = 0; rank < ranks; ++rank) messages.measure(rank, messages.values(values, rank));
      CHECK(magnitudes[0].item<float>() == values.narrow(0, 3, 60).abs().max().item<float>());
      CHECK(magnitudes[1].item<float>() == values.narrow(0, 68, 42).abs().max().item<float>());
      for (int rank = 0; rank < ranks; ++rank)
        messages.encode(rank, messages.values(values, rank), messages.message(all, rank));
      const at::Tensor found = at::zeros_like(values);
      for (int rank = 0; rank < ranks; ++rank)
        messages.decode(rank, messages.message(all, rank), messages.values(found, rank));
      for (const auto& [begin, elements] : {std::pair{0, 3}, std::pair{63, 5}})
        CHECK(at::equal(found.narrow(0, begin, elements), values.narrow(0, begin, elements)));
      for (const auto& [begin, elements, weight] : {std::tuple{3, 60, 0}, std::tuple{68, 42, 1}}) {
        const at::Tensor from = values.narrow(0, begin, elements), bytes = at::empty({elements}, at::kByte),
                         to = at::empty_like(from);
        code.encode(from, magnitudes[weight], bytes);
        code.decode(bytes, magnitudes[weight], to);
        CHECK(at::equal(found.narrow(0, begin, elements), to));
      }
    }
}

TEST_CASE("the magnitude of a weight with NaN is infinite, on all ranks") {
  const SevenBits code;
  const FlatParameterInfo info = four_parameters(at::kBFloat16);
  const at::Tensor magnitudes = at::zeros({2});
  const EncodedMessages messages(info, {{0, 110}}, code, magnitudes);
  const at::Tensor values = drawn(0.3, 110).to(at::kBFloat16);
  values[7] = std::numeric_limits<double>::quiet_NaN();
  values[80] = -std::numeric_limits<double>::infinity();
  messages.measure(0, values);
  CHECK(magnitudes.isposinf().all().item<bool>());
}
