#include "tools/tokenizer/utf8.hpp"

#include "catch.hpp"

using namespace strata::tokenizer;

namespace {

std::string repaired(std::string_view text) {
  std::string buffer;
  return std::string(valid_utf8(text, buffer));
}

}  // namespace

TEST_CASE("valid UTF-8 is not copied") {
  std::string buffer;
  for (const std::string text :
       {"", "plain text of more than eight bytes", "a\u00e9\u4e16\U0001f600z", "\u07ff\u0800\uffff\U0010ffff"}) {
    CHECK(valid_utf8(text, buffer).data() == text.data());
    CHECK(valid_utf8(text, buffer) == text);
  }
}

TEST_CASE("a broken sequence becomes one U+FFFD for as far as it was right") {
  const std::string bad = "\ufffd";
  CHECK(repaired("a\xff"
                 "b") == "a" + bad + "b");
  CHECK(repaired("\xe4\xb8") == bad);                            // cut off
  CHECK(repaired("\xe4\xb8z") == bad + "z");                     // cut off by another character
  CHECK(repaired("\xf0\x9f\x98 \x80") == bad + " " + bad);       // and a rest
  CHECK(repaired("\xc0\xaf") == bad + bad);                      // a spelling too long
  CHECK(repaired("\xe0\x80\x80") == bad + bad + bad);            // the same in three bytes
  CHECK(repaired("\xed\xa0\x80") == bad + bad + bad);            // half of a UTF-16 pair
  CHECK(repaired("\xf4\x90\x80\x80") == bad + bad + bad + bad);  // above U+10FFFF
  CHECK(repaired("\xf0\x9f\x98") == bad);
  CHECK(repaired("12345678\x80"
                 "12345678") == "12345678" + bad + "12345678");
}

TEST_CASE("characters are read and written alike") {
  for (const char32_t code : {U'a', U'\u00e9', U'\u07ff', U'\u0800', U'\uffff', U'\U00010000', U'\U0010ffff'}) {
    std::string text;
    append_utf8(code, text);
    CHECK(character_at(text, 0).code == code);
    CHECK(character_at(text, 0).bytes == text.size());
    CHECK(sequence_at(text, 0).valid);
  }
}
