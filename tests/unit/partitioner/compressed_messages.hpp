// Flat parameters of odd sizes, and what compressed messages make of their numbers in one process that rounds them by
// the reference.
#pragma once
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <strata/toolbox/shard_layout.hpp>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "toolbox/reference_code.hpp"
#include "variant.hpp"

namespace strata {

using Floats = std::vector<float>;
using toolbox::ShardLayout;

inline constexpr std::int64_t small_block = 16;

inline Variant with_small_blocks(const std::string& plugin) {
  return with({plugin, {}}, "wire_block_size", std::to_string(small_block));
}

// One of several parameters, odd sizes, one with a unit that is not cut, a frozen one.
inline std::vector<FlatParameterInfo> odd_parameters() {
  std::vector<FlatParameterInfo> infos = fakes::odd_flat_parameters();
  infos[2].parameters[0].unit = 37;
  FlatParameterInfo several = fakes::flat_parameter_info(static_cast<int>(infos.size()), 200 + 3 + 5 + 117);
  several.parameters.clear();
  std::int64_t offset = 0;
  for (const std::int64_t elements : {200, 3, 5, 117}) {
    ParameterSpan& span = several.parameters.emplace_back();
    span.info.name = "several." + std::to_string(offset);
    span.info.shape = {elements};
    span.offset = offset;
    offset += elements;
  }
  infos.push_back(several);
  return infos;
}

inline at::Tensor drawn(double seed, std::int64_t elements) {
  return at::arange(elements, at::kDouble).mul(1.7 + 0.13 * seed).add(seed).sin().mul(1.0 + seed).to(at::kFloat);
}
inline at::Tensor gradient_of(int step, int micro_batch, int rank, const FlatParameter& flat) {
  return drawn(0.3 * step + 0.7 * micro_batch + 0.9 * rank + 0.1 * flat.info().id, flat.elements());
}

inline Floats floats(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kFloat).contiguous();
  return {plain.const_data_ptr<float>(), plain.const_data_ptr<float>() + plain.numel()};
}

// A whole gradient or parameter, and what messages make of it.
struct Simulation {
  ReferenceCode code;
  float beta = 0.0F;
  std::map<std::string, Floats> errors;  // by what travels

  std::vector<std::int64_t> borders(const FlatParameterInfo& flat, std::int64_t begin) const {
    std::vector<std::int64_t> inside;
    for (const ParameterSpan& span : flat.parameters)
      if (span.offset > begin) inside.push_back(span.offset - begin);
    return inside;
  }
  Floats sent(const FlatParameterInfo& flat, const Floats& whole, std::int64_t begin, std::int64_t end,
              const std::string& from) {
    const Floats values(whole.begin() + begin, whole.begin() + end);
    if (beta == 0.0F) return code.sent(values, borders(flat, begin));
    Floats& error =
        errors.try_emplace(from + " " + flat.name + " " + std::to_string(begin), values.size()).first->second;
    return code.sent(values, borders(flat, begin), &error, beta);
  }
  // The sum over `ranks` of elements [begin, end), each rank's own `whole`.
  Floats sum(const FlatParameterInfo& flat, const std::vector<Floats>& whole, std::int64_t begin, std::int64_t end,
             const std::vector<int>& ranks, const std::string& hop) {
    Floats result(static_cast<std::size_t>(end - begin));
    for (const int rank : ranks) {
      const Floats one = sent(flat, whole[static_cast<std::size_t>(rank)], begin, end, hop + std::to_string(rank));
      for (std::size_t i = 0; i < one.size(); ++i) result[i] += one[i];
    }
    return result;
  }
};

struct Range {
  std::int64_t begin = 0, end = 0;
};

inline std::vector<Range> ranges_of(const ShardLayout& layout, int ranks) {
  std::vector<Range> ranges;
  for (const ShardLayout::Piece& piece : layout.pieces()) {
    const std::int64_t length = piece.in_parts ? piece.elements / ranks : piece.elements;
    for (std::int64_t begin = 0; begin < piece.elements; begin += length)
      ranges.push_back({piece.begin + begin, piece.begin + begin + length});
  }
  return ranges;
}

inline constexpr std::int64_t any_size = std::numeric_limits<std::int64_t>::max();

inline std::vector<std::unique_ptr<FlatParameter>> flat_parameters_of(const std::vector<FlatParameterInfo>& infos) {
  std::vector<std::unique_ptr<FlatParameter>> list;
  for (const FlatParameterInfo& info : infos) list.push_back(std::make_unique<FlatParameter>(info, at::kCPU));
  return list;
}

inline std::vector<FlatParameter*> pointers(const std::vector<std::unique_ptr<FlatParameter>>& list) {
  std::vector<FlatParameter*> result;
  for (const auto& one : list) result.push_back(one.get());
  return result;
}

}  // namespace strata
