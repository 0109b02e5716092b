#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full_like.h>
#include <strata/error.hpp>
#include <strata/parameter_cut.hpp>

#include <string>
#include <vector>

#include "catch.hpp"

using namespace strata;

namespace {

ParameterInfo parameter(std::vector<std::int64_t> shape, Split split) {
  return {.name = "weight", .shape = std::move(shape), .split = split};
}

// A rank's part by libtorch's own cutting: each block is cut, and the ranks' parts of all blocks are put together.
at::Tensor part_of(const at::Tensor& whole, const Split& split, int rank, int ranks) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& block : whole.chunk(split.blocks, split.dimension))
    parts.push_back(block.chunk(ranks, split.dimension)[static_cast<std::size_t>(rank)]);
  return at::cat(parts, split.dimension);
}

}  // namespace

TEST_CASE("a part's runs are the elements that cutting the tensor gives") {
  const auto [shape, split] = GENERATE(table<std::vector<std::int64_t>, Split>({
      {{12}, {.dimension = 0}},
      {{12, 5}, {.dimension = 0}},
      {{5, 12}, {.dimension = 1}},
      {{36, 7}, {.dimension = 0, .blocks = 3}},
      {{36, 7}, {.dimension = 0, .unit = 6}},
      {{3, 24, 2}, {.dimension = 1, .blocks = 2, .unit = 2}},
  }));
  const int ranks = GENERATE(1, 2, 3, 6);
  CAPTURE(shape, split.dimension, split.blocks, ranks);
  const ParameterInfo info = parameter(shape, split);
  const ParameterCut cut(info, ranks);
  REQUIRE(cut.parts() == ranks);
  const at::Tensor whole = at::arange(info.elements()).view(shape);
  for (int rank = 0; rank < ranks; ++rank) {
    const at::Tensor part = part_of(whole, split, rank, ranks);
    CHECK(part.sizes() == at::IntArrayRef(cut.shape()));
    CHECK(part.numel() == cut.elements());
    const at::Tensor expected = part.contiguous().view(-1);
    for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, cut.elements()}, {1, cut.elements() - 1}, {cut.elements() / 2, cut.elements() / 2}}) {
      std::int64_t next = begin;
      cut.for_each_run(rank, begin, end, [&](const ParameterCut::Run& run) {
        CHECK((run.part == rank && run.in_part == next && run.elements > 0));
        CHECK(
            at::equal(expected.narrow(0, run.in_part, run.elements), at::arange(run.whole, run.whole + run.elements)));
        next += run.elements;
      });
      CHECK(next == std::max(begin, end));
    }
  }
  std::int64_t next = 2;
  cut.for_each_run_of_whole(2, info.elements() - 1, [&](const ParameterCut::Run& run) {
    CHECK((run.whole == next && run.elements > 0));
    const at::Tensor part = part_of(whole, split, run.part, ranks).contiguous().view(-1);
    CHECK(at::equal(part.narrow(0, run.in_part, run.elements), at::arange(run.whole, run.whole + run.elements)));
    next += run.elements;
  });
  CHECK(next == info.elements() - 1);
}

TEST_CASE("a padded split has equal parts, whose padding is in no run") {
  const auto [shape, split] = GENERATE(table<std::vector<std::int64_t>, Split>({
      {{13}, {.dimension = 0, .padded = true}},
      {{13, 3}, {.dimension = 0, .padded = true}},
      {{3, 13}, {.dimension = 1, .padded = true}},
      {{14, 4}, {.dimension = 0, .padded = true}},
      {{26, 2}, {.dimension = 0, .unit = 2, .padded = true}},
  }));
  const int ranks = GENERATE(1, 2, 3, 4, 5);
  CAPTURE(shape, split.dimension, ranks);
  const ParameterInfo info = parameter(shape, split);
  const ParameterCut cut(info, ranks);
  const std::int64_t missing =
      cut.shape()[static_cast<std::size_t>(split.dimension)] * ranks - shape[static_cast<std::size_t>(split.dimension)];
  CHECK((missing >= 0 && missing < ranks * split.unit));
  std::vector<std::int64_t> padding(2 * shape.size(), 0);
  padding[2 * (shape.size() - 1 - static_cast<std::size_t>(split.dimension)) + 1] = missing;
  const at::Tensor whole = at::constant_pad_nd(at::arange(info.elements()).view(shape), padding, -1);
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    at::Tensor& part = parts.emplace_back(part_of(whole, split, rank, ranks).contiguous().view(-1));
    CHECK(part.numel() == cut.elements());
    at::Tensor found = at::full_like(part, -1);
    cut.for_each_run(rank, 1, cut.elements(), [&](const ParameterCut::Run& run) {
      found.narrow(0, run.in_part, run.elements).copy_(at::arange(run.whole, run.whole + run.elements));
    });
    CHECK(at::equal(found.narrow(0, 1, found.numel() - 1), part.narrow(0, 1, part.numel() - 1)));
  }
  std::int64_t next = 0;
  cut.for_each_run_of_whole(0, info.elements(), [&](const ParameterCut::Run& run) {
    CHECK((run.whole == next && run.elements > 0));
    CHECK(at::equal(parts[static_cast<std::size_t>(run.part)].narrow(0, run.in_part, run.elements),
                    at::arange(run.whole, run.whole + run.elements)));
    next += run.elements;
  });
  CHECK(next == info.elements());
}

TEST_CASE("a parameter without a split is whole on every rank") {
  const ParameterCut cut(parameter({4, 3}, {}), 5);
  CHECK((cut.parts() == 1 && cut.part_of(4) == 0 && cut.elements() == 12));
  int runs = 0;
  cut.for_each_run(0, 3, 11, [&](const ParameterCut::Run& run) {
    ++runs;
    CHECK((run.whole == 3 && run.in_part == 3 && run.elements == 8));
  });
  CHECK(runs == 1);
}

TEST_CASE("an impossible cut is refused with the numbers") {
  CHECK_THROWS_WITH(
      ParameterCut(parameter({12, 5}, {.dimension = 0, .unit = 2}), 4),
      Contains("parallel.tensor is 4") && Contains("weight") && Contains("6 units") && Contains("a divisor of 6"));
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 0, .unit = 2}), 4), UserError);
  // Of 5 rows 4 ranks get 2, 2, 1 and none.
  CHECK_THROWS_WITH(ParameterCut(parameter({5, 3}, {.dimension = 0, .padded = true}), 4),
                    Contains("parallel.tensor is 4") && Contains("5 units"));
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 0, .blocks = 2, .padded = true}), 4), Bug);
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 2}), 1), Bug);
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 0, .blocks = 5}), 1), Bug);
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 0, .blocks = 0}), 1), Bug);
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 0}), 2).for_each_run(0, 0, 31, {}), Bug);
  CHECK_THROWS_AS(ParameterCut(parameter({12, 5}, {.dimension = 0}), 2).for_each_run(2, 0, 1, {}), Bug);
}
