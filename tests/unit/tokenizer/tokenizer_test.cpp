#include "tokenizer/tokenizer.hpp"

#include <strata/error.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "unit/tokenizer/small_tokenizer.hpp"

using strata::UserError;
using strata::tokenizer::Encoder;
using strata::tokenizer::Tokenizer;
using Ids = std::vector<std::uint32_t>;
using Json = nlohmann::json;

namespace {

Json with_template(Json json) {
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "B"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"B", {{"ids", {7}}}}}}};
  return json;
}

}  // namespace

TEST_CASE("text becomes tokens and tokens text") {
  const TokenizerFile file(small_tokenizer());
  const Tokenizer tokenizer(file.path());
  const std::string text = "hello the\xff<|endoftext|>";
  const Ids ids{258, 'o', 259, 256, 0xef, 0xbf, 0xbd, 260};
  CHECK(tokenizer.encode(text) == ids);
  CHECK(tokenizer.decode(ids) == "hello the\ufffd<|endoftext|>");
  CHECK(tokenizer.encode("").empty());
  CHECK(tokenizer.vocabulary_size() == 261);
  CHECK(tokenizer.document_end() == 260u);
  CHECK_THAT(error_of<UserError>([&] { tokenizer.decode(Ids{261}); }), Contains("has no token 261"));
}

TEST_CASE("a template stands in front of a document, not in front of its parts") {
  const TokenizerFile file(with_template(small_tokenizer()));
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.encode("he") == Ids{7, 256});
  CHECK(tokenizer.before() == Ids{7});
  CHECK(tokenizer.behind().empty());
  Ids ids;
  Encoder(tokenizer).encode("he", true, ids);
  CHECK(ids == Ids{256});
}

TEST_CASE("a space stands in front of what begins without one") {
  Json json = small_tokenizer();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const TokenizerFile file(json);
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.encode("t t") == Ids{259, 259});
  CHECK(tokenizer.encode(" t<|endoftext|>t") == Ids{259, 260, 259});
  Ids ids;
  Encoder(tokenizer).encode("t<|endoftext|>t", false, ids);  // the rest of a document
  CHECK(ids == Ids{'t', 260, 259});
}

TEST_CASE("a text is cut where no token changes, and nowhere when an added token could reach over it") {
  const TokenizerFile file(small_tokenizer());
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.last_cut("hello the world") == 9);
  CHECK(tokenizer.last_cut("hello the ") == 9);
  CHECK(tokenizer.last_cut("hello  ") == 5);
  CHECK(tokenizer.last_cut("hello") == 0);
  CHECK(tokenizer.last_cut("") == 0);
  CHECK(tokenizer.last_cut("\xe4\xb8 a") == 0);  // behind a broken character
  Json json = small_tokenizer();
  json["added_tokens"].push_back({{"id", 261}, {"content", "two words"}});
  const TokenizerFile other(json);
  CHECK(Tokenizer(other.path()).last_cut("hello the world") == 0);
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].erase(1);
  const TokenizerFile third(json);
  CHECK(Tokenizer(third.path()).last_cut("a \u212b ") == 1);  // not beside what NFC changes
}

TEST_CASE("a family that adds no end of a document, or two, has none") {
  Json json = small_tokenizer();
  json["added_tokens"].push_back({{"id", 261}, {"content", "<|end_of_text|>"}});
  CHECK(!Tokenizer(TokenizerFile(json).path()).document_end());
  json["added_tokens"] = Json::array();
  CHECK(!Tokenizer(TokenizerFile(json).path()).document_end());
}

TEST_CASE("a file that would come out differently is refused with its key") {
  Json json = small_tokenizer();
  json["model"]["byte_fallback"] = true;
  const TokenizerFile file(json);
  CHECK_THAT(error_of<UserError>([&] { Tokenizer tokenizer(file.path()); }),
             Contains(file.path()) && Contains("model.byte_fallback is true; it must be false"));
}
