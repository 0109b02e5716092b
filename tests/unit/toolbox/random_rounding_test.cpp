// Rounding to bf16 at random: right in the mean, and the same bits by the loop and by libtorch's operators.
#include <ATen/ATen.h>
#include <strata/toolbox/random_rounding.hpp>

#include <cmath>
#include <limits>
#include <vector>

#include "catch.hpp"

using strata::PieceInfo;
using strata::RandomRounding;

namespace {

PieceInfo piece_of(std::int64_t begin, std::int64_t count, const std::string& name = "weight") {
  return {name, {begin + count}, begin, begin + count};
}

RandomRounding rounding_of(const PieceInfo& piece, std::int64_t updates, std::uint64_t seed = 0) {
  strata::StepScalars scalars;
  scalars.updates = updates;
  scalars.seed = seed;
  return {piece, scalars};
}

at::Tensor rounded(const at::Tensor& values, const PieceInfo& piece, std::int64_t updates, std::int64_t begin = 0,
                   std::uint64_t seed = 0) {
  at::Tensor copy = values.clone();
  rounding_of(piece, updates, seed).round(copy.mutable_data_ptr<float>(), begin, copy.numel());
  return copy;
}

}  // namespace

TEST_CASE("a number is rounded up as often as its distance says") {
  constexpr std::int64_t count = 1000000;
  for (const double fraction : {0.0, 1.0 / 1024, 0.25, 0.5, 0.9}) {
    const at::Tensor values = at::full({count}, -(1.0 + fraction / 128));  // between two neighbours in bf16
    const at::Tensor found = rounded(values, piece_of(0, count), 3);
    const double ups = (found == -(1.0 + 1.0 / 128)).sum().item<double>(), downs = (found == -1.0).sum().item<double>();
    const double deviation = std::sqrt(count * fraction * (1 - fraction));
    CAPTURE(fraction, ups);
    CHECK(ups + downs == count);
    CHECK(std::abs(ups - count * fraction) <= 5 * deviation);
  }
}

TEST_CASE("elements, updates and parameters have random numbers of their own") {
  constexpr std::int64_t count = 200000;
  const at::Tensor halves = at::full({count}, 1.0 + 0.5 / 128);
  const auto signs = [&](const std::string& name, std::int64_t updates, std::int64_t begin) {
    return (rounded(halves, piece_of(begin, count, name), updates) > 1.0).to(at::kDouble) * 2 - 1;
  };
  const at::Tensor first = signs("weight", 0, 0);
  const double bound = 5 / std::sqrt(static_cast<double>(count));  // of the mean of independent products
  for (const std::int64_t distance : {1, 2, 3, 7, 8, 64, 768, 1024})
    CHECK(std::abs((first * signs("weight", 0, distance)).mean().item<double>()) < bound);
  for (const std::int64_t updates : {1, 2, 1000, 1 << 20})
    CHECK(std::abs((first * signs("weight", updates, 0)).mean().item<double>()) < bound);
  CHECK(std::abs((first * signs("weighs", 0, 0)).mean().item<double>()) < bound);
  const at::Tensor of_seed = (rounded(halves, piece_of(0, count), 0, 0, 1) > 1.0).to(at::kDouble) * 2 - 1;
  CHECK(std::abs((first * of_seed).mean().item<double>()) < bound);
  CHECK(std::abs((first * signs("weight", 0, std::int64_t{1} << 32)).mean().item<double>()) < bound);
}

TEST_CASE("bf16's values and non-finite ones are unchanged") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const at::Tensor values = at::tensor({1.0F, -0.0F, 3.0e38F, 1e-40F, infinite, -infinite, NAN});
  const at::Tensor exact = values.to(at::kBFloat16).to(at::kFloat);
  for (std::int64_t updates = 0; updates < 50; ++updates)
    CHECK(at::equal(rounded(exact, piece_of(0, 7), updates).narrow(0, 0, 6), exact.narrow(0, 0, 6)));
  CHECK(std::isnan(rounded(values, piece_of(0, 7), 0)[6].item<float>()));
}

TEST_CASE("every cut and both ways give the same bits") {
  at::manual_seed(1);
  constexpr std::int64_t count = 5000;
  const at::Tensor values = at::randn({count});
  for (const std::int64_t first : {std::int64_t{0}, (std::int64_t{1} << 32) - 1234}) {
    const at::Tensor whole = rounded(values, piece_of(first, count), 9);
    CHECK_FALSE(at::equal(whole, values.to(at::kBFloat16).to(at::kFloat)));
    CHECK(at::equal(whole.to(at::kBFloat16).to(at::kFloat), whole));
    CHECK(at::equal(rounding_of(piece_of(first, count), 9).round(values.view({50, 100}), 0).view(-1), whole));
    for (const std::int64_t cut : {1, 1233, 1234, 4999}) {
      const at::Tensor end = values.slice(0, cut);
      CHECK(at::equal(rounded(end, piece_of(first + cut, count - cut), 9), whole.slice(0, cut)));
      CHECK(at::equal(rounded(end, piece_of(first, count), 9, cut), whole.slice(0, cut)));
      CHECK(at::equal(rounding_of(piece_of(first, count), 9).round(end, cut), whole.slice(0, cut)));
    }
  }
}

TEST_CASE("a tensor-parallel rank's part has the bits of the whole") {
  at::manual_seed(2);
  // A weight of [14, 9]: by rows, by columns, and by rows in two blocks.
  for (const strata::Split& split :
       {strata::Split{.dimension = 0}, {.dimension = 1, .unit = 3}, {.dimension = 0, .blocks = 2}}) {
    const int ranks = split.dimension == 1 ? 3 : split.blocks == 2 ? 7 : 2;
    strata::ParameterInfo info;
    info.name = "weight";
    info.shape = {14, 9};
    info.split = split;
    const strata::ParameterCut cut(info, ranks);
    const at::Tensor values = at::randn({14 * 9});
    const at::Tensor whole = rounded(values, PieceInfo::whole(info), 5);
    for (int rank = 0; rank < ranks; ++rank) {
      const at::Tensor part = at::empty({cut.elements()}), expected = at::empty({cut.elements()});
      cut.for_each_run(rank, 0, cut.elements(), [&](const strata::ParameterCut::Run& run) {
        part.narrow(0, run.in_part, run.elements).copy_(values.narrow(0, run.whole, run.elements));
        expected.narrow(0, run.in_part, run.elements).copy_(whole.narrow(0, run.whole, run.elements));
      });
      PieceInfo piece = PieceInfo::whole(info);
      piece.places = cut.places(rank);
      piece.end = cut.elements();
      CHECK(at::equal(rounded(part, piece, 5), expected));
      CHECK(at::equal(rounding_of(piece, 5).round(part, 0), expected));
      piece.begin = 5;
      CHECK(at::equal(rounded(part.slice(0, 5), piece, 5), expected.slice(0, 5)));
    }
  }
}
