#include <fcntl.h>
#include <strata/error.hpp>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "catch.hpp"
#include "data/loader.hpp"
#include "temporary_folder.hpp"
#include "unit/data/open_tokens.hpp"

using namespace strata::data;
using Ids = std::vector<std::int64_t>;

namespace {

// The samples of a micro-batch.
Ids samples(BatchPlan plan, const SampleOrder& order, std::int64_t step, std::int64_t a, std::int64_t r) {
  plan.rank = r;
  Ids ids;
  for (std::int64_t i = 0; i < plan.micro_batch; ++i) ids.push_back(order.sample(plan.first_position(step, a) + i));
  return ids;
}

}  // namespace

TEST_CASE("every epoch of a shuffled order holds every sample once") {
  for (const std::int64_t samples : {1, 2, 3, 5, 16, 17, 255, 256, 257, 1000, 4097}) {
    const SampleOrder order(samples, 42);
    std::set<Ids> epochs;
    for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
      Ids ids;
      for (std::int64_t i = 0; i < samples; ++i) ids.push_back(order.sample(epoch * samples + i));
      epochs.insert(ids);
      std::sort(ids.begin(), ids.end());
      for (std::int64_t i = 0; i < samples; ++i) REQUIRE(ids[static_cast<std::size_t>(i)] == i);
    }
    if (samples > 16) CHECK(epochs.size() == 4);  // each another one
  }
}

TEST_CASE("a shuffled order is spread evenly") {
  // Over many epochs each sample stands at each place about equally often: chi-squared with 12 degrees of freedom per
  // place.
  constexpr std::int64_t samples = 13, epochs = 13'000;
  const SampleOrder order(samples, 3);
  std::vector<std::vector<double>> counts(samples, std::vector<double>(samples));
  for (std::int64_t i = 0; i < samples * epochs; ++i) {
    ++counts[static_cast<std::size_t>(i % samples)][static_cast<std::size_t>(order.sample(i))];
  }
  for (const auto& place : counts) {
    double chi_squared = 0.0;
    for (const double count : place) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
    CHECK(chi_squared < 45.0);  // exceeded by chance once in 100,000
  }
}

TEST_CASE("the shuffled order never changes") {
  const auto first = [](std::int64_t samples, std::uint64_t seed, std::int64_t from) {
    const SampleOrder order(samples, seed);
    Ids ids;
    for (std::int64_t i = 0; i < 10; ++i) ids.push_back(order.sample(from + i));
    return ids;
  };
  CHECK(first(10, 1, 0) == Ids{8, 2, 7, 4, 6, 0, 1, 5, 3, 9});
  CHECK(first(10, 1, 10) == Ids{2, 3, 8, 0, 7, 9, 5, 6, 4, 1});
  CHECK(first(10, 2, 0) == Ids{8, 4, 1, 9, 7, 2, 0, 3, 6, 5});
  CHECK(first(1'000'000'007, 1, 5'000'000'000) == Ids{744275221, 955597598, 219794232, 564146795, 135166316, 330455170,
                                                      879985912, 721706978, 849491436, 631190682});
}

TEST_CASE("a sequential order wraps") {
  const SampleOrder order(3);
  CHECK(Ids{order.sample(0), order.sample(2), order.sample(3), order.sample(7)} == Ids{0, 2, 0, 1});
}

TEST_CASE("the documented rule: micro-batch a of rank r is the (a * ranks + r)-th run of the step's samples") {
  const SampleOrder order(1'000'000);
  // Literal values of the rule's reference implementation: sample_ids(step, micro-batch, rank, ranks, micro_batch,
  // accumulation).
  CHECK(samples(BatchPlan{2, 3, 2}, order, 0, 0, 0) == Ids{0, 1});
  CHECK(samples(BatchPlan{2, 3, 2}, order, 0, 1, 0) == Ids{6, 7});
  CHECK(samples(BatchPlan{2, 3, 2}, order, 4, 1, 2) == Ids{58, 59});
  CHECK(samples(BatchPlan{3, 2, 4}, order, 7, 3, 1) == Ids{189, 190, 191});
  for (const std::int64_t ranks : {1, 2, 3}) {
    const BatchPlan plan{12 / ranks / 2, ranks, 2};
    REQUIRE(plan.global_batch() == 12);
    for (std::int64_t step = 0; step < 5; ++step) {
      Ids seen;
      for (std::int64_t a = 0; a < 2; ++a) {
        for (std::int64_t r = 0; r < ranks; ++r) {
          const Ids ids = samples(plan, order, step, a, r);
          seen.insert(seen.end(), ids.begin(), ids.end());
        }
      }
      for (std::int64_t i = 0; i < 12; ++i) CHECK(seen[static_cast<std::size_t>(i)] == step * 12 + i);
    }
  }
  CHECK_THROWS_AS((samples(BatchPlan{2, 3, 2}, order, 0, 2, 0)), strata::Bug);
  CHECK_THROWS_AS((samples(BatchPlan{2, 3, 2}, order, -1, 0, 0)), strata::Bug);
}

TEST_CASE("a micro-batch holds the sample's tokens and targets, on any number of ranks") {
  const TemporaryFolder folder;
  constexpr std::int64_t length = 5, tokens = 5 * 7 + 3;  // 7 samples and two tokens nobody sees
  std::string content;
  for (std::uint16_t i = 0; i < tokens; ++i) content += bytes<std::uint16_t>({static_cast<std::uint16_t>(i * 7)});
  write_file(folder / "a.bin", content);
  const auto loader_of = [&](const BatchPlan& plan) {
    return Loader(
        OrderedSamples(open_tokens("nanogpt", folder / "a.bin"), strata::config::DataOrder::Sequential, {length, 0, 1}),
        plan);
  };
  CHECK_THROWS_AS(loader_of({2, 3, 2, 3}), strata::Bug);
  for (const std::int64_t ranks : {1, 2, 3}) {
    for (std::int64_t r = 0; r < ranks; ++r) {
      const Loader loader = loader_of({2, ranks, 2, r});
      for (std::int64_t step = 0; step < 4; ++step) {  // wraps: 4 steps of at least 4 samples
        for (std::int64_t a = 0; a < 2; ++a) {
          const TokenBatch batch = loader.micro_batch(step, a);
          REQUIRE(batch.tokens.sizes() == at::IntArrayRef({2, length}));
          REQUIRE(batch.targets.sizes() == at::IntArrayRef({2, length}));
          REQUIRE(batch.tokens.scalar_type() == at::kLong);
          CHECK(batch.valid_tokens == 2 * length);
          const auto* inputs = batch.tokens.const_data_ptr<std::int64_t>();
          const auto* targets = batch.targets.const_data_ptr<std::int64_t>();
          for (std::int64_t row = 0; row < 2; ++row) {
            const std::int64_t sample = (step * 4 * ranks + (a * ranks + r) * 2 + row) % 7;
            for (std::int64_t i = 0; i < length; ++i) {
              CHECK(inputs[row * length + i] == 7 * (sample * length + i));
              CHECK(targets[row * length + i] == 7 * (sample * length + i + 1));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("A mask leaves targets out, in every order") {
  const TemporaryFolder folder;
  std::mt19937_64 random(5);
  for (int round = 0; round < 100; ++round) {
    const auto length = static_cast<std::int64_t>(1 + random() % 9);
    const auto count = static_cast<std::size_t>(length) + 1 + random() % 200;
    std::string tokens, mask;
    Ids row, is_target;
    for (std::size_t i = 0; i < count; ++i) {
      row.push_back(static_cast<std::int64_t>(random() % 300));
      is_target.push_back(static_cast<std::int64_t>(random() % 2));
      tokens += bytes<std::uint16_t>({static_cast<std::uint16_t>(row.back())});
      mask += static_cast<char>(is_target.back());
    }
    write_file(folder / "tokens.bin", tokens);
    write_file(folder / "mask.u8", mask);
    const bool shuffled = random() % 2 == 0;
    const OrderedSamples samples(
        open_tokens("nanogpt", folder / "tokens.bin", {{"token_type", "u16"}, {"mask", folder / "mask.u8"}}),
        shuffled ? strata::config::DataOrder::Shuffled : strata::config::DataOrder::Sequential, {length, 0, 9});
    std::vector<std::uint8_t> read(static_cast<std::size_t>(length) + 1);
    Ids ids(read.size());
    const std::int64_t positions = 2 * samples.count();
    for (std::int64_t position = 0; position < positions; ++position) {
      samples.read(position, ids.data(), read.data());
      const std::int64_t first = samples.sample(position) * length;
      REQUIRE(std::equal(ids.begin(), ids.end(), row.begin() + first));
      REQUIRE(std::equal(read.begin(), read.end(), is_target.begin() + first));
    }
    const Loader loader(
        {open_tokens("nanogpt", folder / "tokens.bin", {{"token_type", "u16"}, {"mask", folder / "mask.u8"}}),
         strata::config::DataOrder::Sequential,
         {length, 0, 9}},
        BatchPlan{});
    const TokenBatch batch = loader.micro_batch(0, 0);
    for (std::int64_t token = 0; token < length; ++token) {
      const auto next = static_cast<std::size_t>(token) + 1;
      REQUIRE(batch.targets.const_data_ptr<std::int64_t>()[token] == (is_target[next] == 1 ? row[next] : -100));
    }
  }
}
