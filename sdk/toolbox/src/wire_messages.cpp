#include <strata/toolbox/wire_messages.hpp>

#include <algorithm>

namespace strata::toolbox {

RangeMessages::Ranges RangeMessages::ranges_of(const ShardLayout::Piece& piece, int ranks) {
  Ranges ranges;
  const std::int64_t elements = piece.in_parts ? piece.elements / ranks : piece.elements;
  for (std::int64_t begin = 0; begin < piece.elements; begin += elements)
    ranges.emplace_back(piece.begin + begin, piece.begin + begin + elements);
  return ranges;
}

WireMessages::WireMessages(const FlatParameterInfo& flat, const Ranges& ranges, const BlockFormat& format)
    : RangeMessages(ranges) {
  for (const auto& [begin, end] : ranges) {
    std::vector<std::int64_t> borders;
    for (const ParameterSpan& span : flat.parameters)
      if (span.offset > begin && span.offset < end) borders.push_back(span.offset - begin);
    const BlockCode& code = codes_.emplace_back(end - begin, borders, format);
    bytes_ = std::max(bytes_, code.bytes());
    error_bytes_ += code.error_bytes();
  }
}

at::Tensor WireMessages::errors(const at::Tensor& errors, int range) const {
  if (!errors.defined()) return errors;
  std::int64_t begin = 0;
  for (int before = 0; before < range; ++before) begin += code(before).error_bytes();
  return errors.narrow(0, begin, code(range).error_bytes());
}

}  // namespace strata::toolbox
