#include "tools/tokenizer/merges.hpp"

#include <numeric>
#include <random>

#include "catch.hpp"

using namespace strata::tokenizer;

namespace {

std::vector<std::uint32_t> bytes() {
  std::vector<std::uint32_t> ids(256);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

std::vector<std::uint32_t> tokens(const Merges& merges, const std::string& word) {
  std::vector<std::uint32_t> ids;
  merges.apply(word, ids);
  return ids;
}

// As the rule says: of all pairs the one of the smallest rank, the leftmost of equal ones.
std::vector<std::uint32_t> by_the_rule(const Merges& merges, const std::string& word) {
  std::vector<std::uint32_t> ids;
  for (const char byte : word) ids.push_back(static_cast<unsigned char>(byte));
  for (;;) {
    Merges::Merge best;
    std::size_t at = 0;
    for (std::size_t index = 0; index + 1 < ids.size(); ++index) {
      const Merges::Merge merge = merges.find(ids[index], ids[index + 1]);
      if (merge.rank < best.rank) best = merge, at = index;
    }
    if (best.rank == Merges::none) return ids;
    ids[at] = best.id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

}  // namespace

TEST_CASE("the smallest rank goes first, and of equal ones the leftmost") {
  Merges merges(bytes(), 3);
  merges.add('a', 'a', {1, 300});
  merges.add('a', 'b', {0, 301});
  merges.add(300, 301, {2, 302});
  CHECK(tokens(merges, "aaa") == std::vector<std::uint32_t>{300, 'a'});
  CHECK(tokens(merges, "aab") == std::vector<std::uint32_t>{'a', 301});
  CHECK(tokens(merges, "aaab") == std::vector<std::uint32_t>{302});
  CHECK(tokens(merges, "x") == std::vector<std::uint32_t>{'x'});
  merges.add('a', 'b', {5, 303});
  CHECK(tokens(merges, "ab") == std::vector<std::uint32_t>{303});
}

TEST_CASE("words of every length follow the rule") {
  std::mt19937 random(3);
  Merges merges(bytes(), 400);
  std::uint32_t next = 256;
  for (std::uint32_t rank = 0; rank < 400; ++rank) {
    const auto part = [&] { return random() % 3 ? 'a' + random() % 4 : 256 + random() % (next - 255); };
    merges.add(part(), part(), {rank, next++});
  }
  for (std::size_t length = 1; length < 90; ++length) {
    for (int time = 0; time < 20; ++time) {
      std::string word(length, ' ');
      for (char& byte : word) byte = static_cast<char>('a' + random() % 4);
      INFO(word);
      CHECK(tokens(merges, word) == by_the_rule(merges, word));
    }
  }
}

TEST_CASE("a byte without a token is left out, or becomes the unknown token") {
  std::vector<std::uint32_t> ids = bytes();
  ids['x'] = ids['y'] = Merges::none;
  const std::string word = "axxbya", long_word = std::string(40, 'z') + word;
  const auto of = [&](const UnknownByte& unknown, const std::string& text, std::size_t left_out) {
    Merges merges(ids, 1, unknown);
    merges.add('a', 'b', {0, 300});
    std::vector<std::uint32_t> found;
    CHECK(merges.apply(text, found) == left_out);
    if (text.size() > word.size()) found.erase(found.begin(), found.begin() + 40);
    return found;
  };
  for (const std::string& text : {word, long_word}) {
    CHECK(of({}, text, 3) == std::vector<std::uint32_t>{300, 'a'});  // what is left stands together
    CHECK(of({7, false}, text, 0) == std::vector<std::uint32_t>{'a', 7, 7, 'b', 7, 'a'});
    CHECK(of({7, true}, text, 0) == std::vector<std::uint32_t>{'a', 7, 'b', 7, 'a'});
  }
}
