#include "tokenizer/added_tokens.hpp"

#include "catch.hpp"

using namespace strata::tokenizer;

TEST_CASE("the leftmost added token is found, and of those that begin there the longest") {
  AddedTokenFinder finder;
  finder.add("<a>", 1);
  finder.add("<a>>", 2);
  finder.add("a>", 3);
  finder.add("\n", 4);
  finder.prepare();
  const std::string text = "x<a>><a>a>\n";
  std::vector<std::uint32_t> ids;
  std::vector<std::size_t> begins;
  for (std::size_t position = 0; position < text.size();) {
    const AddedTokenFinder::Match match = finder.find(text, position);
    if (match.end > match.begin) ids.push_back(match.id), begins.push_back(match.begin);
    position = match.end;
  }
  CHECK(ids == std::vector<std::uint32_t>{2, 1, 3, 4});
  CHECK(begins == std::vector<std::size_t>{1, 5, 8, 10});
  CHECK(finder.find("<", 0).begin == 1);
  CHECK(finder.find("none", 0).begin == 4);
}

TEST_CASE("without added tokens none is found") {
  AddedTokenFinder finder;
  finder.prepare();
  CHECK(finder.find("text", 1).begin == 4);
  CHECK(finder.empty());
}
