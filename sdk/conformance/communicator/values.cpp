#include "conformance/communicator/values.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <strata/split_mix.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

namespace {

constexpr std::int64_t margin = 32;  // elements
constexpr int marked = 77;

double unit_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return 0x1p-8;
    case at::kHalf:
      return 0x1p-11;
    case at::kFloat:
      return 0x1p-24;
    default:
      return 0x1p-53;
  }
}

std::string number(double value) {
  std::ostringstream text;
  text.precision(9);
  text << value;
  return text.str();
}

}  // namespace

at::Tensor drawn_values(std::uint64_t seed, int rank, std::int64_t elements, at::ScalarType dtype) {
  std::uint64_t state =
      split_mix(seed ^ split_mix(static_cast<std::uint64_t>(rank) ^ split_mix(static_cast<std::uint64_t>(elements))));
  if (c10::isIntegralType(dtype, false)) {
    const at::Tensor values = at::empty({elements}, at::kLong);
    auto* const data = values.mutable_data_ptr<std::int64_t>();
    for (std::int64_t i = 0; i < elements; ++i) data[i] = static_cast<std::int64_t>(split_mix(++state)) >> 8;
    return values.to(dtype);
  }
  const at::Tensor values = at::empty({elements}, at::kDouble);
  auto* const data = values.mutable_data_ptr<double>();
  for (std::int64_t i = 0; i < elements; ++i) {
    const std::uint64_t bits = split_mix(++state);
    const double part = static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-63;  // from -1 to 1
    data[i] = part * static_cast<double>(1 << (bits & 7U));
  }
  return values.to(dtype);
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOperation reduction) {
  const at::ScalarType dtype = inputs.front().scalar_type();
  const at::ScalarType wide = dtype == at::kBFloat16 || dtype == at::kHalf ? at::kFloat : dtype;
  at::Tensor result = inputs.front().to(wide);
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    const at::Tensor next = inputs[rank].to(wide);
    result = reduction == ReduceOperation::Sum ? result.add(next) : at::maximum(result, next);
  }
  return result.to(dtype);
}

void check_reduced(const at::Tensor& found, const std::vector<at::Tensor>& inputs, ReduceOperation reduction,
                   bool in_rank_order, const std::string& what) {
  const at::Tensor wanted = reduced(inputs, reduction);
  const at::ScalarType dtype = wanted.scalar_type();
  const bool exact =
      reduction == ReduceOperation::Max || (in_rank_order && (dtype == at::kFloat || dtype == at::kDouble));
  if (same_bytes(found, wanted)) return;
  require(!c10::isIntegralType(dtype, false), what + " is not the sum or maximum of the ranks' whole numbers");
  at::Tensor sizes = inputs.front().to(at::kDouble).abs();
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) sizes = sizes.add(inputs[rank].to(at::kDouble).abs());
  const at::Tensor is = found.to(at::kDouble), should = wanted.to(at::kDouble);
  const double bound = exact ? 0.0 : 2.0 * static_cast<double>(inputs.size()) * unit_of(dtype);
  for (std::int64_t i = 0; i < is.numel(); ++i) {
    const double a = is.const_data_ptr<double>()[i], b = should.const_data_ptr<double>()[i];
    if (std::abs(a - b) <= bound * sizes.const_data_ptr<double>()[i]) continue;
    throw Failure(what + ": element " + std::to_string(i) + " is " + number(a) +
                  "; the sum or maximum of the ranks' inputs is " + number(b) +
                  (exact && reduction == ReduceOperation::Sum
                       ? "; sum in rank order 0, 1, 2, ..., or declare EQUIVALENCE reassociation"
                       : ""));
  }
}

Framed::Framed(std::int64_t elements, at::ScalarType dtype)
    : whole_(at::full({elements + 2 * margin}, marked, at::TensorOptions().dtype(dtype))),
      inner_(whole_.narrow(0, margin, elements)) {}

void Framed::check(const std::string& what) const {
  for (const at::Tensor& end : {whole_.narrow(0, 0, margin), whole_.narrow(0, margin + inner_.numel(), margin)})
    if (!end.eq(marked).all().item<bool>()) throw Failure(what + " wrote outside its output");
}

}  // namespace strata::conformance
