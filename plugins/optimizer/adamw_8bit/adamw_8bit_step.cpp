#include "adamw_8bit_step.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <strata/toolbox/element_pass.hpp>
#include <strata/vector_clones.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dynamic_map.hpp"

namespace strata::adamw_8bit {
namespace {

static_assert(element_tile_unit % block_elements == 0, "a block lies in one tile");

STRATA_VECTOR_CLONES [[gnu::flatten]] void update(const ElementTile& tile, float gradient_factor,
                                                  const AdamFormula<true>& formula) {
  update_elements(tile, gradient_factor, formula);
}

// The memory of one moment.
struct Moment {
  const DynamicMap& map;
  std::uint8_t* codes;
  float* scales;

  void read(std::int64_t begin, float* values, std::int64_t count) const {
    decode(map, codes + begin, scales[begin / block_elements], values, count);
  }
  void write(std::int64_t begin, const float* values, std::int64_t count) const {
    scales[begin / block_elements] = encode(map, values, codes + begin, count);
  }
};

struct Work {
  AdamFormula<true> formula;
  Moment first;
  Moment second;
};

}  // namespace

void blocks_step(std::span<Piece* const> pieces, const StepScalars& scalars,
                 const adamw::AdamwHyperparameters& hyperparameters) {
  if (scalars.apply.item<float>() == 0.0F) return;
  const float gradient_factor = scalars.gradient_factor.item<float>();
  std::vector<Work> work;
  for (const Piece* const piece : pieces) {
    const auto moment = [&](const DynamicMap& map, std::size_t state) {
      return Moment{map, piece->state[state].mutable_data_ptr<std::uint8_t>(),
                    piece->state[state + 1].mutable_data_ptr<float>()};
    };
    work.push_back(
        {AdamFormula<true>(*piece, scalars, hyperparameters), moment(signed_map(), 0), moment(unsigned_map(), 2)});
  }
  element_pass(pieces, scalars, [&](std::size_t piece, const ElementTile& tile) {
    const auto& [formula, first, second] = work[piece];
    float m[block_elements], v[block_elements];
    for (std::int64_t at = 0; at < tile.count; at += block_elements) {
      const std::int64_t count = std::min(block_elements, tile.count - at), begin = tile.begin + at;
      first.read(begin, m, count);
      second.read(begin, v, count);
      update({begin, count, tile.master + at, tile.gradient + at, {m, v}}, gradient_factor, formula);
      first.write(begin, m, count);
      second.write(begin, v, count);
    }
  });
}

namespace {

// [blocks, block_elements], what is missing of the last block filled with zeros.
at::Tensor in_blocks(const at::Tensor& values) {
  const std::int64_t over = values.numel() % block_elements;
  const at::Tensor whole = over == 0 ? values : at::constant_pad_nd(values, {0, block_elements - over});
  return whole.view({-1, block_elements});
}

at::Tensor decoded(const DeviceMaps::Map& map, const at::Tensor& codes, const at::Tensor& scales) {
  const at::Tensor numbers = map.numbers.index_select(0, codes.to(at::kInt));
  return in_blocks(numbers).mul(scales.unsqueeze(1)).view(-1).narrow(0, 0, codes.numel());
}

// Codes and scales, as encode() computes them.
std::pair<at::Tensor, at::Tensor> encoded(const DeviceMaps::Map& map, const at::Tensor& values) {
  const at::Tensor blocks = in_blocks(values), largest = blocks.abs().amax(1);
  const at::Tensor is_zero = largest < std::numeric_limits<float>::min();
  const at::Tensor magnitude = (blocks.abs() * at::where(is_zero, 0.0, largest.reciprocal()).unsqueeze(1)).view(-1);
  // 0: below the first decade.
  const at::Tensor decade = at::bucketize(magnitude, map.from, /*out_int32=*/false, /*right=*/true);
  const at::Tensor count = map.counts.index_select(0, decade);
  const at::Tensor place = magnitude * map.factors.index_select(0, decade) + count * (8.0F / 9.0F);
  const at::Tensor rank = at::maximum(at::minimum(place, count * 2.0 - 1.0), count).to(at::kInt) - map.host->below;
  const at::Tensor code =
      map.host->has_sign ? at::where(blocks.view(-1) < 0, (127 - rank).clamp_min(0), rank + 127) : rank;
  return {code.narrow(0, 0, values.numel()).to(at::kByte), at::where(is_zero, 0.0, largest)};
}

}  // namespace

DeviceMaps::DeviceMaps(const at::Tensor& memory) {
  std::vector<float> all;
  const auto add = [&](const auto& numbers, std::size_t zeros = 0) {
    all.insert(all.end(), zeros, 0.0F);
    all.insert(all.end(), numbers.begin(), numbers.end());
  };
  std::int64_t used = 0;
  const auto next = [&](std::int64_t count) { return memory.narrow(0, (used += count) - count, count); };
  for (auto [map, host] : {std::pair(&first, &signed_map()), std::pair(&second, &unsigned_map())}) {
    *map = {host, next(256), next(8), next(9), next(9)};
    add(host->numbers);
    add(host->from);
    add(host->factor, 1);  // 0 below the first decade
    add(host->count, 1);
    all[all.size() - 9] = static_cast<float>(host->below);
  }
  memory.copy_(at::from_blob(all.data(), {std::ssize(all)}, at::kFloat));
}

void blocks_reference_step(const Piece& piece, const StepScalars& scalars,
                           const adamw::AdamwHyperparameters& hyperparameters, const DeviceMaps& maps) {
  at::Tensor p = piece.master.to(at::kFloat);
  const at::Tensor g = piece.gradient.to(at::kFloat) * scalars.gradient_factor.to(p.device());
  std::array<at::Tensor, 2> moments{decoded(maps.first, piece.state[0], piece.state[1]),
                                    decoded(maps.second, piece.state[2], piece.state[3])};
  AdamFormula<true>(piece, scalars, hyperparameters)(p, g, moments);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto [codes, scales] = encoded(i == 0 ? maps.first : maps.second, moments[i]);
    write_applied(piece.state[2 * i], codes, scalars);
    write_applied(piece.state[2 * i + 1], scales, scalars);
  }
  write_weights(piece, 0, p, scalars);
}

}  // namespace strata::adamw_8bit
