#include "tools/tokenizer/added_tokens.hpp"

#include "catch.hpp"

using namespace strata::tokenizer;

namespace {

// The parts of a text: [ID] for an added token, else the text between.
std::string parts(const AddedTokenFinder& finder, const std::string& text) {
  std::string all;
  finder.split(
      text, [&](std::string_view between) { all.append("'").append(between).append("'"); },
      [&](const AddedToken& token) { all += "[" + std::to_string(token.id) + "]"; });
  return all;
}

AddedTokenFinder finder_of(const std::vector<AddedToken>& tokens) {
  AddedTokenFinder finder;
  for (const AddedToken& token : tokens) finder.add(token);
  return finder;
}

AddedToken token(const std::string& content, std::uint32_t id) {
  return {content, id};
}

AddedToken single_word(AddedToken token) {
  token.single_word = true;
  return token;
}

AddedToken strips(AddedToken token, bool left, bool right) {
  token.strips_left = left;
  token.strips_right = right;
  return token;
}

}  // namespace

TEST_CASE("the leftmost added token is found, and of those that begin there the longest") {
  const AddedTokenFinder finder = finder_of({token("<a>", 1), token("<a>>", 2), token("a>", 3), token("\n", 4)});
  CHECK(parts(finder, "x<a>><a>a>\n") == "'x'[2][1][3][4]");
  CHECK(parts(finder, "<") == "'<'");
  CHECK(finder.find("none", 0).begin == 4);
}

TEST_CASE("without added tokens none is found") {
  const AddedTokenFinder finder = finder_of({});
  CHECK(finder.find("text", 1).begin == 4);
  CHECK(parts(finder, "text") == "'text'");
  CHECK(parts(finder, "").empty());
}

TEST_CASE("a single word has no character of a word beside it") {
  const AddedTokenFinder finder = finder_of({single_word(token("ab", 1))});
  CHECK(parts(finder, "ab ab, ab") == "[1]' '[1]', '[1]");
  CHECK(parts(finder, "xab abx _ab ab7 \u00e9ab ab\u0301") == "'xab abx _ab ab7 \u00e9ab ab\u0301'");
  CHECK(parts(finder, "-ab- \u00b2ab\u4e00 \u00b2ab\u00bd") == "'-'[1]'- \u00b2ab\u4e00 \u00b2'[1]'\u00bd'");
}

TEST_CASE("a token that strips takes the spaces beside it, and none twice") {
  CHECK(parts(finder_of({strips(token("<m>", 1), true, false)}), "a \u3000\n<m> b <m>") == "'a'[1]' b'[1]");
  CHECK(parts(finder_of({strips(token("<m>", 1), false, true)}), "a <m> \u2003\tb<m>") == "'a '[1]'b'[1]");
  CHECK(parts(finder_of({strips(token("<m>", 1), true, true)}), " <m>  <m>") == "[1][1]");
  // Of spaces that another token has taken already, the library finds a token again where it does not strip them
  // itself.
  CHECK(parts(finder_of({strips(token("\n", 1), true, true)}), "\n\n\nx") == "[1]'x'");
  CHECK(parts(finder_of({strips(token("\n", 1), false, true)}), "\n\nx") == "[1][1]'x'");
}

TEST_CASE("a row of spaces is looked through once, however many tokens begin in it") {
  const AddedTokenFinder finder = finder_of({strips(token("\n", 1), true, true), strips(token(" ", 2), false, true)});
  std::size_t found = 0;
  const std::string text(std::size_t{1} << 20, '\n');  // in squares it would take a minute
  finder.split(
      text, [](std::string_view) {}, [&](const AddedToken&) { ++found; });
  CHECK(found == 1);
}
