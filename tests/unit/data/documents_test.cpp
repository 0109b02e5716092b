#include <strata/error.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include "catch.hpp"
#include "data/loader.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "unit/data/open_tokens.hpp"

using namespace strata::data;
using strata::UserError;
using strata::config::DataOrder;
using Ids = std::vector<std::int64_t>;

namespace {

struct Sample {
  Ids inputs, targets;
  bool operator==(const Sample&) const = default;
};

std::string file_of(const TemporaryFolder& folder, const Ids& row) {
  std::string content;
  for (const std::int64_t id : row) content += bytes<std::uint16_t>({static_cast<std::uint16_t>(id)});
  write_file(folder / "row.bin", content);
  return folder / "row.bin";
}

OrderedSamples separate(const std::string& file, std::int64_t seq_len, std::int64_t end,
                        DataOrder order = DataOrder::Sequential, std::uint64_t seed = 1) {
  return {open_tokens("nanogpt", file, {{"token_type", "u16"}}), order, {seq_len, 0, seed}, end};
}

// By the words of the rule: documents first, then their pieces, token by token.
std::vector<Sample> expected(const Ids& row, std::int64_t seq_len, std::int64_t end) {
  std::vector<Ids> documents(1);
  for (const std::int64_t id : row) {
    documents.back().push_back(id);
    if (id == end) documents.emplace_back();
  }
  std::vector<Sample> samples;
  for (const Ids& document : documents)
    for (std::size_t first = 0; first + 1 < document.size(); first += static_cast<std::size_t>(seq_len)) {
      samples.emplace_back();
      for (std::size_t at = first; at < first + static_cast<std::size_t>(seq_len); ++at) {
        samples.back().inputs.push_back(at < document.size() ? document[at] : end);
        samples.back().targets.push_back(at + 1 < document.size() ? document[at + 1] : -100);
      }
    }
  return samples;
}

// All samples in the order's first epoch, as micro-batches of one.
std::vector<Sample> read(OrderedSamples samples) {
  const std::int64_t count = samples.count(), length = samples.seq_len();
  const Loader loader(std::move(samples), BatchPlan{});
  std::vector<Sample> all;
  for (std::int64_t position = 0; position < count; ++position) {
    const TokenBatch batch = loader.micro_batch(position, 0);
    const auto ids = [&](const at::Tensor& tensor) {
      const auto* first = tensor.const_data_ptr<std::int64_t>();
      return Ids(first, first + length);
    };
    all.push_back({ids(batch.tokens), ids(batch.targets)});
    CHECK(batch.valid_tokens == length - std::ranges::count(all.back().targets, -100));
  }
  return all;
}

}  // namespace

TEST_CASE("a sample holds tokens of one document") {
  const TemporaryFolder folder;
  constexpr std::int64_t none = -100;
  // With the end of 1, 2, 4 = seq_len, 5 = seq_len + 1, 6, 9 and 10 tokens; then one that the file cuts.
  const std::string file = file_of(folder, {9, 1, 9, 2, 3, 4, 9, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 9, 1, 2,
                                            3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 9, 6, 7});
  CHECK(read(separate(file, 4, 9)) == std::vector<Sample>{{{1, 9, 9, 9}, {9, none, none, none}},
                                                          {{2, 3, 4, 9}, {3, 4, 9, none}},
                                                          {{5, 6, 7, 8}, {6, 7, 8, 9}},
                                                          {{1, 2, 3, 4}, {2, 3, 4, 5}},
                                                          {{5, 9, 9, 9}, {9, none, none, none}},
                                                          {{1, 2, 3, 4}, {2, 3, 4, 5}},
                                                          {{5, 6, 7, 8}, {6, 7, 8, 9}},
                                                          {{1, 2, 3, 4}, {2, 3, 4, 5}},
                                                          {{5, 6, 7, 8}, {6, 7, 8, 1}},
                                                          {{1, 9, 9, 9}, {9, none, none, none}},
                                                          {{6, 7, 9, 9}, {7, none, none, none}}});
  const DocumentSamples found(open_tokens("nanogpt", file, {{"token_type", "u16"}}), 4, 9);
  CHECK(found.count() == 11);
  CHECK(found.documents() == 7);  // that of 1 token, only its end, has nothing to predict
  CHECK(found.targets() == 1 + 3 + 4 + 5 + 8 + 9 + 1);
}

TEST_CASE("random documents give the samples of the rule") {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    const TemporaryFolder folder;
    const auto seq_len = static_cast<std::int64_t>(1 + random() % 9);
    Ids row;
    for (std::uint64_t document = 0, count = 1 + random() % 12; document < count; ++document) {
      const std::uint64_t length = random() % static_cast<std::uint64_t>(3 * seq_len + 2);
      for (std::uint64_t token = 0; token < length; ++token) row.push_back(static_cast<std::int64_t>(1 + random() % 5));
      row.push_back(0);
    }
    row.insert(row.begin(), {3, 4});  // one target at least
    for (std::uint64_t token = 0, count = random() % 4; token < count; ++token) row.push_back(2);
    const std::vector<Sample> samples = expected(row, seq_len, 0);
    INFO("seq_len " << seq_len << ", " << row.size() << " tokens, round " << round);
    REQUIRE(read(separate(file_of(folder, row), seq_len, 0)) == samples);
    const auto seed = random();
    const SampleOrder order(std::ssize(samples), seed);
    std::vector<Sample> shuffled;
    for (std::int64_t position = 0; position < std::ssize(samples); ++position)
      shuffled.push_back(samples[static_cast<std::size_t>(order.sample(position))]);
    REQUIRE(read(separate(folder / "row.bin", seq_len, 0, DataOrder::Shuffled, seed)) == shuffled);
  }
}

TEST_CASE("documents are found across the blocks in which a file is read") {
  const TemporaryFolder folder;
  constexpr std::int64_t block = 1 << 16;
  for (const std::int64_t last : {block - 2, block - 1, block, block + 1}) {  // the place of an end
    Ids row(2 * block + 5, 1);
    for (const std::int64_t place : {std::int64_t{100}, last, 2 * block}) row[static_cast<std::size_t>(place)] = 0;
    CHECK(read(separate(file_of(folder, row), 1000, 0)) == expected(row, 1000, 0));
  }
  std::vector<std::int64_t> seen;
  const DocumentSamples found(open_tokens("nanogpt", folder / "row.bin", {{"token_type", "u16"}}), 10, 0,
                              [&](std::int64_t tokens) { seen.push_back(tokens); });
  CHECK(seen == Ids{block, 2 * block, 2 * block + 5});
}

TEST_CASE("samples of one document refuse unsuitable files") {
  const TemporaryFolder folder;
  const std::string file = file_of(folder, {1, 2, 3, 4, 0, 5});
  CHECK_THAT(error_of<UserError>([&] { separate(file, 4, 7); }),
             Contains("row.bin: the document end, token 7, does not occur, so the whole file is one document"));
  CHECK_THAT(error_of<UserError>([&] {
               separate(file_of(folder, {0, 0, 0, 1}), 4, 0);
             }),
             Contains("row.bin: no document has a target"));
  CHECK(separate(file_of(folder, {3, 0}), 1'000'000, 0).count() == 1);  // shorter than a window
  CHECK_THROWS_AS(separate(file, 4, 0, DataOrder::Own), strata::Bug);
}

TEST_CASE("Documents of a masked file: pieces without a target are left out") {
  std::mt19937_64 random(11);
  for (int round = 0; round < 200; ++round) {
    const TemporaryFolder folder;
    const auto seq_len = static_cast<std::int64_t>(1 + random() % 7);
    Ids row{3, 4};
    for (std::uint64_t token = 0, count = random() % 80; token < count; ++token)
      row.push_back(static_cast<std::int64_t>(random() % 6));
    row.push_back(0);
    std::string mask{0, 1};
    for (std::size_t token = 2; token < row.size(); ++token) mask += static_cast<char>(random() % 4 == 0);
    write_file(folder / "mask.u8", mask);
    // The rule of documents on the row and on its mask, each behind the same ends.
    std::vector<Sample> wanted;
    std::int64_t begin = 0;
    for (std::int64_t at = 0; at < std::ssize(row); ++at) {
      if (row[static_cast<std::size_t>(at)] != 0) continue;
      for (std::int64_t first = begin; first < at; first += seq_len) {
        Sample sample;
        for (std::int64_t token = first; token < first + seq_len; ++token) {
          const auto next = static_cast<std::size_t>(token) + 1;
          sample.inputs.push_back(token <= at ? row[next - 1] : 0);
          sample.targets.push_back(token < at && mask[next] != 0 ? row[next] : -100);
        }
        if (std::ranges::count(sample.targets, -100) < seq_len) wanted.push_back(sample);
      }
      begin = at + 1;
    }
    const strata::fakes::OptionTexts options{{"token_type", "u16"}, {"mask", folder / "mask.u8"}};
    INFO("seq_len " << seq_len << ", " << row.size() << " tokens, round " << round);
    REQUIRE(read({open_tokens("nanogpt", file_of(folder, row), options), DataOrder::Sequential, {seq_len, 0, 1}, 0}) ==
            wanted);
  }
}
