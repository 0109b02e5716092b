#include "group/fact.hpp"

#include "catch.hpp"

using namespace strata::group;

namespace {

const std::vector<Fact> mine{{"data.path", "10 tokens", "/a/train.bin"}, {"plugin ABI", "2.20"}};

std::string difference_to(const std::vector<Fact>& theirs) {
  return difference(0, mine, 3, read_facts(written(theirs)));
}

}  // namespace

TEST_CASE("facts differ by name and value, and not by place") {
  CHECK(difference_to(mine).empty());
  CHECK(difference_to({{"data.path", "10 tokens", "/b/other.bin"}, {"plugin ABI", "2.20"}}).empty());
  CHECK(difference_to({{"data.path", "11 tokens", "/b; c"}, {"plugin ABI", "2.20"}}) ==
        "rank 0 has data.path /a/train.bin (10 tokens), rank 3 has data.path /b; c (11 tokens)");
  CHECK(difference_to({{"data.path", "10 tokens", ""}}) == "rank 0 has plugin ABI (2.20), rank 3 has no more");
  CHECK(difference_to({}) == "rank 0 has data.path /a/train.bin (10 tokens), rank 3 has no more");
}

TEST_CASE("facts come back from their text") {
  const std::vector<Fact> odd{{"", "", ""}, {"a;b", "c\x1f", "\n"}, {"last", "", "x"}};
  const std::vector<Fact> read = read_facts(written(odd));
  REQUIRE(read.size() == 3);
  CHECK(read[1].name == "a;b");
  CHECK(read[1].value == "c?");
  CHECK(read[1].where == "\n");
  CHECK(read[2].where == "x");
  CHECK(read_facts("").empty());
  CHECK(read_facts("a\x1f"
                   "b\x1f")
            .empty());
}
