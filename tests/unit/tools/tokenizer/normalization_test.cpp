#include "tools/tokenizer/normalization.hpp"

#include "catch.hpp"

using namespace strata::tokenizer;

namespace {

std::string nfc(const std::string& text) {
  std::string changed;
  return std::string(normalized(text, changed));
}

}  // namespace

TEST_CASE("normalized text is not copied") {
  const std::string text = "plain, caf\u00e9, \u4e16\u754c, \ud55c";
  std::string changed;
  CHECK(normalized(text, changed).data() == text.data());
}

TEST_CASE("marks are merged, and moved into their order") {
  CHECK(nfc("cafe\u0301 noir") == "caf\u00e9 noir");
  CHECK(nfc("q\u0323\u0307") == nfc("q\u0307\u0323"));
  CHECK(nfc("\u0301\u0301x") == "\u0301\u0301x");
  CHECK(nfc("\u1112\u1161\u11ab!") == "\ud55c!");
  CHECK(nfc("\u212b\u2126\u1e9b\u0323") == "\u00c5\u03a9\u1e9b\u0323");
  CHECK(nfc("a\u0308\u0304 e\u0301") == "\u01df \u00e9");
  CHECK(nfc("\u0958") == "\u0915\u093c");  // longer than before
}

TEST_CASE("a mark newer than the tables stays where it is") {
  CHECK(nfc("a\u08ca\u0323") == "a\u08ca\u0323");  // Unicode 14, which would come behind U+0323
  CHECK(nfc("a\u08ca\u0323\u0301") == "a\u08ca\u0323\u0301");
  CHECK(nfc("a\u064b\u08ca\u0323\u0301e\u0301") == "a\u064b\u08ca\u0323\u0301\u00e9");
}

TEST_CASE("normalization is independent on both sides of a boundary") {
  const std::string left = "cafe\u0301", right = "a\u0323\u0301b";
  CHECK(nfc(left + right) == nfc(left) + nfc(right));
  CHECK(normalization_begins_anew(U'a'));
  CHECK(!normalization_begins_anew(U'\u0301'));
  CHECK(!normalization_begins_anew(U'\u1161'));
  CHECK(!normalization_begins_anew(U'\u212b'));
}
