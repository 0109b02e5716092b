// Pieces for the tests of AdamW's kernels: every pair of formats, odd lengths, slices that begin anywhere.
#pragma once
#include <ATen/ATen.h>
#include <strata/optimizer.hpp>

#include <array>
#include <vector>

#include "adamw/adamw_step.hpp"

inline const strata::adamw::AdamwHyperparameters numbers_of_test{0.8, 0.95, 1e-6, 0.1};

inline void processor_step(strata::Piece piece, const strata::StepScalars& scalars) {
  strata::adamw::adamw_step(std::array{&piece}, scalars, numbers_of_test);
}

struct AdamwCase {
  at::ScalarType gradient = at::kFloat;
  at::ScalarType copy = at::kByte;  // kByte: no copy
  std::int64_t elements = 0;
  std::int64_t offset = 0;  // elements before the piece in each buffer
  bool uneven = false;      // the copy begins one element later than the others
};

inline std::vector<AdamwCase> adamw_cases(const std::vector<std::int64_t>& lengths) {
  std::vector<AdamwCase> cases;
  for (const at::ScalarType gradient : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const at::ScalarType copy : {at::kByte, at::kFloat, at::kBFloat16, at::kHalf})
      for (const std::int64_t elements : lengths)
        for (const std::int64_t offset : {0, 1, 2, 3, 7})
          for (const bool uneven : {false, true})
            if (!uneven || copy != at::kByte) cases.push_back({gradient, copy, elements, offset, uneven});
  return cases;
}

// Values of the sizes that training has, and some that are not: zeros, denormal, huge and negative ones.
inline strata::Piece piece_of(const AdamwCase& c) {
  at::manual_seed(c.elements + 100 * c.offset);
  const auto part = [&](const at::Tensor& whole, std::int64_t more = 0) {
    return whole.narrow(0, c.offset + more, c.elements);
  };
  const std::int64_t room = c.offset + c.elements + 1;
  strata::Piece piece;
  piece.info = {"weight", {c.elements}, 0, c.elements};
  piece.master = part(at::randn({room}));
  at::Tensor gradient = at::randn({room});
  const std::vector<float> odd{0.0F, -0.0F, 1e-40F, -1e-30F, 60000.0F, 1e-8F};
  for (std::size_t i = 0; i < odd.size() && static_cast<std::int64_t>(i) < room; ++i)
    gradient[static_cast<std::int64_t>(i)] = odd[i];
  piece.gradient = part(gradient.to(c.gradient));
  if (c.copy != at::kByte) piece.parameter = part(at::zeros({room}, c.copy), c.uneven ? 1 : 0);
  piece.state = {part(at::randn({room})), part(at::rand({room}))};
  return piece;
}

// Every finite or infinite 16-bit pattern as the upper half of a master, with lower halves below, at and above the tie,
// and a gradient of zero: a step at learning rate 0 leaves it, so that the copy shows nothing but the rounding.
inline strata::Piece rounding_piece(at::ScalarType copy) {
  std::vector<at::Tensor> parts;
  for (const std::int64_t low : {0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF})
    parts.push_back(at::arange(65536, at::kLong) * 65536 + low);
  const at::Tensor all = at::cat(parts).to(at::kInt).view(at::kFloat);  // wraps into the sign bit
  strata::Piece piece;
  piece.master = all.index({all.isnan().logical_not()}).contiguous();
  piece.info = {"weight", {piece.master.numel()}, 0, piece.master.numel()};
  piece.gradient = at::zeros_like(piece.master);
  piece.parameter = at::zeros_like(piece.master, copy);
  piece.state = {at::zeros_like(piece.master), at::zeros_like(piece.master)};
  return piece;
}

// The same piece in buffers of its own on `device`, beginning at the same elements: neighbours included, so that writes
// beside the piece are seen.
inline at::Tensor clone_of(const at::Tensor& part, at::Device device) {
  if (!part.defined()) return part;
  const at::Tensor whole = at::empty({0}, part.options()).set_(part.storage());
  return whole.to(device, /*non_blocking=*/false, /*copy=*/true).narrow(0, part.storage_offset(), part.numel());
}

inline strata::Piece clone_of(const strata::Piece& piece, at::Device device = at::kCPU) {
  strata::Piece copy = piece;
  copy.master = clone_of(piece.master, device);
  copy.gradient = clone_of(piece.gradient, device);
  copy.parameter = clone_of(piece.parameter, device);
  for (at::Tensor& state : copy.state) state = clone_of(state, device);
  return copy;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  const auto bytes = [](const at::Tensor& part) {
    return at::empty({0}, part.options())
        .set_(part.storage())
        .cpu()
        .view(part.element_size() == 4 ? at::kInt : at::kShort);
  };
  return at::equal(bytes(a), bytes(b));
}

inline bool same_bits(const strata::Piece& a, const strata::Piece& b) {
  bool same = same_bits(a.master, b.master) && same_bits(a.parameter, b.parameter) && same_bits(a.gradient, b.gradient);
  for (std::size_t i = 0; i < a.state.size(); ++i) same = same && same_bits(a.state[i], b.state[i]);
  return same;
}

inline strata::StepScalars scalars_of(std::int64_t updates, double factor = 0.5, double apply = 1.0,
                                      at::Device device = at::kCPU) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
  return {0.01, updates, at::full({}, factor, options), at::full({}, apply, options)};
}
