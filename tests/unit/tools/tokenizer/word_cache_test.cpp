#include "tools/tokenizer/word_cache.hpp"

#include "catch.hpp"

using namespace strata::tokenizer;

namespace {

std::vector<std::uint32_t> ids_of(std::size_t number) {
  std::vector<std::uint32_t> ids;
  for (std::size_t count = 0; count <= number % 5; ++count) ids.push_back(static_cast<std::uint32_t>(number + count));
  return ids;
}

std::string word_of(std::size_t number) {
  return std::string(number % 40, '\0') + std::to_string(number);
}

}  // namespace

TEST_CASE("words of all lengths are known with their own tokens, also after it was full") {
  WordCache cache;
  CHECK(cache.find("word").empty());
  constexpr std::size_t many = 300000;  // more than there is room for
  for (std::size_t number = 0; number < many; ++number) cache.insert(word_of(number), ids_of(number));
  std::size_t known = 0;
  for (std::size_t number = 0; number < many; ++number) {
    const auto found = cache.find(word_of(number));
    if (found.empty()) continue;
    ++known;
    if (std::vector(found.begin(), found.end()) != ids_of(number)) FAIL("other tokens for " << number);
  }
  CHECK(known > 10000);
  CHECK(known < many);
  CHECK(!cache.find(word_of(many - 1)).empty());
}

TEST_CASE("words that differ in trailing zeros are different") {
  WordCache cache;
  cache.insert(std::string("a\0", 2), std::vector<std::uint32_t>{1});
  CHECK(cache.find("a").empty());
  CHECK(cache.find(std::string("a\0", 2)).size() == 1);
}
