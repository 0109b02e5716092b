#include <strata/error.hpp>

#include <algorithm>
#include <vector>

#include "catch.hpp"
#include "error_of.hpp"
#include "megatron/megatron_order.hpp"
#include "temporary_folder.hpp"
#include "unit/data/token_bytes.hpp"

using namespace strata::megatron;
using strata::UserError;

namespace {

MegatronIndex index_of(const std::string& path, const std::vector<std::int32_t>& lengths) {
  MegatronBytes files;
  files.lengths = lengths;
  files.offsets.assign(1, 0);
  for (const std::int32_t length : lengths) files.offsets.push_back(files.offsets.back() + 2 * length);
  files.offsets.pop_back();
  files.sequences = lengths.size();
  files.boundaries = {0, static_cast<std::int64_t>(lengths.size())};
  files.boundary_count = 2;
  write_file(path, files.index());
  return MegatronIndex(path);
}

using Documents = std::vector<std::int32_t>;
using Starts = std::vector<MegatronOrder::Start>;
using Shuffle = std::vector<std::uint32_t>;

}  // namespace

// The numbers are those of NumPy 2.4's RandomState(seed).shuffle and of Megatron-LM's rules, computed in Python.
TEST_CASE("document, sample and shuffle index are Megatron's") {
  const TemporaryFolder folder;
  const MegatronIndex index = index_of(folder / "a.idx", {3, 0, 5, 1, 7, 2, 4});
  SECTION("one epoch") {
    const MegatronOrder order(index, 4, 0, 1234);
    CHECK(order.document_index() == Documents{2, 1, 6, 0, 4, 5, 3});
    CHECK(order.sample_index() == Starts{{0, 0}, {0, 4}, {2, 3}, {4, 0}, {4, 4}, {5, 1}});
    CHECK(order.shuffle_index() == Shuffle{2, 0, 4, 3, 1});
  }
  SECTION("the last epoch apart: 2 of its 5 samples are wanted") {
    const MegatronOrder order(index, 4, 7, 1234);
    CHECK(order.document_index() == Documents{2, 1, 6, 0, 4, 5, 3, 5, 0, 3, 4, 2, 6, 1});
    CHECK(order.sample_index() ==
          Starts{{0, 0}, {0, 4}, {2, 3}, {4, 0}, {4, 4}, {5, 1}, {8, 0}, {10, 0}, {10, 4}, {11, 1}, {12, 0}});
    CHECK(order.shuffle_index() == Shuffle{1, 0, 3, 2, 4, 7, 6, 8, 9, 5});
  }
  SECTION("all epochs together: the last one is wanted whole") {
    const MegatronOrder order(index, 4, 10, 1234);
    CHECK(order.document_index() == Documents{5, 3, 0, 4, 6, 2, 2, 0, 1, 1, 4, 5, 6, 3});
    CHECK(order.sample_index() ==
          Starts{{0, 0}, {2, 1}, {3, 2}, {3, 6}, {4, 3}, {5, 3}, {6, 2}, {7, 1}, {10, 2}, {10, 6}, {12, 1}});
    CHECK(order.shuffle_index() == Shuffle{3, 9, 2, 1, 7, 5, 4, 0, 8, 6});
  }
  SECTION("the largest seed") {
    const MegatronOrder order(index, 3, 26, 4294967295);
    CHECK(order.document_index() ==
          Documents{6, 2, 5, 4, 1, 1, 2, 0, 4, 3, 2, 5, 1, 0, 3, 6, 6, 3, 5, 4, 4, 1, 0, 6, 0, 5, 2, 3});
    CHECK(order.shuffle_index() == Shuffle{10, 12, 4,  27, 21, 18, 14, 16, 7, 2,  24, 6,  19, 28, 17,
                                           0,  20, 13, 22, 8,  1,  5,  15, 9, 23, 26, 25, 3,  11});
  }
}

TEST_CASE("a longer shuffle is NumPy's too") {
  const TemporaryFolder folder;
  const MegatronIndex index = index_of(folder / "a.idx", Documents(100'000, 1));
  const Documents documents = MegatronOrder(index, 9, 0, 7).document_index();
  CHECK(Documents(documents.begin(), documents.begin() + 5) == Documents{33909, 92307, 89107, 9538, 31008});
  CHECK(Documents(documents.end() - 5, documents.end()) == Documents{53459, 10742, 49689, 58564, 61615});
}

TEST_CASE("an order that cannot be is refused") {
  const TemporaryFolder folder;
  const MegatronIndex index = index_of(folder / "a.idx", {3, 5});
  CHECK_THAT(error_of<UserError>([&] { MegatronOrder(index, 4, 1, std::uint64_t{1} << 32); }),
             Contains("seed is 4294967296"));
  CHECK_THAT(error_of<UserError>([&] { MegatronOrder(index, 8, 0, 1); }), Contains("a.idx: holds 8 tokens"));
  CHECK_THAT(error_of<UserError>([&] { MegatronOrder(index, 4, INT64_MAX, 1); }), Contains("too many"));
  CHECK_THAT(error_of<UserError>([&] { MegatronOrder(index, 1'000'000'000, INT64_MAX, 1); }), Contains("too many"));
  CHECK_THAT(error_of<UserError>([&] { MegatronOrder(index, 1, std::int64_t{1} << 33, 1); }), Contains("too many"));
  const MegatronOrder order(index, 20, 3, 1);  // a sample longer than an epoch goes through several
  CHECK(order.document_index().size() == 16);
  CHECK(order.samples() == 3);
}
