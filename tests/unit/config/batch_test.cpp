#include "config/batch.hpp"

#include <numbers>

#include "catch.hpp"
#include "fake_plugins.hpp"

namespace strata::config {
namespace {

using Number = std::optional<std::int64_t>;

ParallelSizes parallel(std::int64_t world, Number pipeline, Number tensor, Number data = {}) {
  return solve_parallel(
      world, "--nproc",
      {{Axis::Pipeline, {pipeline, {"p"}}}, {Axis::Tensor, {tensor, {"t"}}}, {Axis::Data, {data, {"d"}}}});
}

Batch solve(Number micro_batch, Number accumulation, Number global_batch, std::int64_t data = 2) {
  return solve_batch({{micro_batch, {"m"}}, {accumulation, {"a"}}, {global_batch, {"g"}}, parallel(2 * data, 2, 1)});
}

std::string batch_error(Number micro_batch, Number accumulation, Number global_batch, std::int64_t data = 2) {
  return error_of([&] { solve(micro_batch, accumulation, global_batch, data); });
}

void check(const Batch& batch, std::int64_t micro_batch, std::int64_t accumulation, std::int64_t global_batch) {
  CHECK(batch.micro_batch == micro_batch);
  CHECK(batch.accumulation == accumulation);
  CHECK(batch.global_batch == global_batch);
}

}  // namespace

TEST_CASE("All eight cases of the batch sizes") {
  check(solve(4, 8, 64), 4, 8, 64);
  check(solve(4, {}, 64), 4, 8, 64);
  check(solve({}, 8, 64), 4, 8, 64);
  check(solve(4, 8, {}), 4, 8, 64);
  check(solve({}, {}, 64), 32, 1, 64);
  check(solve(4, {}, {}), 4, 1, 8);
  CHECK(batch_error({}, 8, {}) ==
        "a: train: accumulation alone is given; give train.micro_batch or train.global_batch (samples)");
  CHECK(batch_error({}, {}, {}) ==
        "a: train: no batch size is given; give train.micro_batch or train.global_batch (samples)");
  CHECK(solve(4, 8, 64).micro_batch_origin.empty());
  CHECK(solve(4, {}, 64).accumulation_origin == "global_batch / (micro_batch x data-parallel size 2)");
  CHECK(solve({}, 8, 64).micro_batch_origin == "global_batch / (accumulation x data-parallel size 2)");
  CHECK(solve(4, 8, {}).global_batch_origin == "micro_batch x accumulation x data-parallel size 2");
  CHECK(solve(4, {}, {}).accumulation_origin == "1, as only one batch size is given");
}

TEST_CASE("An indivisible batch is an error with the two nearest valid values") {
  const std::string size = "data-parallel size 2 = world size 4 (--nproc) / (pipeline 2 x tensor 1)";
  CHECK(batch_error(4, {}, 65) ==
        "g: train.global_batch 65 / (micro_batch 4 x data-parallel size 2 = 8) is not a whole number, so accumulation "
        "cannot be derived from it (" +
            size + "); the nearest valid values of global_batch are 64 and 72");
  CHECK(batch_error({}, 8, 65).find("65 / (accumulation 8 x data-parallel size 2 = 16) is not a whole number, so "
                                    "micro_batch cannot be derived") != std::string::npos);
  CHECK(batch_error({}, 8, 65).ends_with("64 and 80"));
  CHECK(batch_error({}, {}, 65).find("accumulation 1 (derived) x data-parallel size 2 = 2") != std::string::npos);
  CHECK(batch_error({}, {}, 65).ends_with("64 and 66"));
  CHECK(batch_error(4, 8, 65) ==
        "g: train.global_batch 65 is not micro_batch 4 x accumulation 8 x data-parallel size 2 = 64 (all three are "
        "given, none derived; " +
            size +
            "); leave one out to have it derived: without accumulation the nearest valid values of global_batch are 64 "
            "and 72");
  CHECK(batch_error(4, {}, 3).ends_with("8 and 16"));  // smaller than the smallest
  CHECK(batch_error({}, {}, 10, 3).ends_with("9 and 12"));
  CHECK(batch_error(std::int64_t{1} << 40, std::int64_t{1} << 40, {}).find("more than a 64-bit number") !=
        std::string::npos);
}

TEST_CASE("Derived values multiply back, for any that divide") {
  for (std::int64_t data = 1; data <= 4; ++data) {
    for (std::int64_t micro_batch = 1; micro_batch <= 5; ++micro_batch) {
      for (std::int64_t accumulation = 1; accumulation <= 5; ++accumulation) {
        const std::int64_t global_batch = micro_batch * accumulation * data;
        check(solve(micro_batch, accumulation, {}, data), micro_batch, accumulation, global_batch);
        check(solve(micro_batch, {}, global_batch, data), micro_batch, accumulation, global_batch);
        check(solve({}, accumulation, global_batch, data), micro_batch, accumulation, global_batch);
      }
    }
  }
}

TEST_CASE("The world is divided exactly") {
  CHECK(parallel(8, 2, 2).size(Axis::Data) == 2);
  CHECK(parallel(3, {}, {}).size(Axis::Data) == 3);
  CHECK(parallel(8, 2, 2, 2).size(Axis::Data) == 2);
  CHECK(error_of([] { parallel(3, 2, 1); }) ==
        "p: parallel: world size 3 (--nproc) is not divisible by pipeline 2 x tensor 1 = 2; the nearest valid world "
        "sizes are 2 and 4");
  CHECK(error_of([] { parallel(1, 2, 2); }).ends_with("4 and 8"));
  CHECK(error_of([] { parallel(8, 2, 1, 2); }) ==
        "d: parallel: world size 8 (--nproc) is not pipeline 2 x tensor 1 x data 2 = 4; start 4 ranks, or leave "
        "parallel.data out (auto), which makes "
        "it 4");
  CHECK(error_of([] { parallel(7, 2, 1, 2); }).ends_with("leave parallel.data out (auto)"));
}

}  // namespace strata::config
