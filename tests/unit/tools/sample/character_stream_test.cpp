#include "tools/sample/character_stream.hpp"

#include "catch.hpp"

using strata::sample::CharacterStream;

TEST_CASE("a character is shown when its last byte has come, and never in halves") {
  const std::string text = "a\u00e9\u20ac\U0001F600z";
  CharacterStream stream;
  std::string shown;
  for (const char byte : text) {
    shown += stream.add(std::string(1, byte));
    const unsigned char last = shown.empty() ? 0 : static_cast<unsigned char>(shown.back());
    CHECK(text.starts_with(shown));
    CHECK((last < 0x80 || text.size() == shown.size() ||
           (static_cast<unsigned char>(text[shown.size()]) & 0xc0) != 0x80));
  }
  CHECK(shown == text);
  CHECK(stream.finish().empty());
}

TEST_CASE("bytes that are no UTF-8 are shown as U+FFFD, as soon as that is certain") {
  CharacterStream stream;
  CHECK(stream.add("a\xe2\x82") == "a");
  CHECK(stream.add("b") == "\ufffdb");
  CHECK(stream.add("\xff") == "");
  CHECK(stream.add("\xff") == "\ufffd");
  CHECK(stream.finish() == "\ufffd");
  CHECK(stream.finish().empty());
}
