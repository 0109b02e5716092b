#include "tokenizer/tokenizer.hpp"

#include <strata/error.hpp>

#include <nlohmann/json.hpp>

#include "catch.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "tokenizer/byte_characters.hpp"
#include "tokenizer/utf8.hpp"

using strata::UserError;
using strata::tokenizer::Encoder;
using strata::tokenizer::Tokenizer;
using Ids = std::vector<std::uint32_t>;
using Json = nlohmann::json;

namespace {

// Bytes are their own ids; "he", "ll", "hell" and " t" are 256 to 259; <|endoftext|> is 260.
Json definition() {
  Json vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string token;
    strata::tokenizer::append_utf8(strata::tokenizer::character_of_byte(static_cast<unsigned char>(byte)), token);
    vocabulary[token] = byte;
  }
  vocabulary.update({{"he", 256}, {"ll", 257}, {"hell", 258}, {"\u0120t", 259}});
  return {
      {"version", "1.0"},
      {"added_tokens", {{{"id", 260}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"h e", Json::array({"l", "l"}), "he ll", "\u0120 t"}}}}};
}

class File {
 public:
  explicit File(const Json& json) { write_file(path(), json.dump()); }
  std::string path() const { return folder_ / "tokenizer.json"; }

 private:
  TemporaryFolder folder_;
};

Json with_template(Json json) {
  json["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {{{"SpecialToken", {{"id", "B"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                            {"special_tokens", {{"B", {{"ids", {7}}}}}}};
  return json;
}

}  // namespace

TEST_CASE("text becomes tokens and tokens text") {
  const File file(definition());
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
  const File file(with_template(definition()));
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.encode("he") == Ids{7, 256});
  CHECK(tokenizer.before() == Ids{7});
  CHECK(tokenizer.behind().empty());
  Ids ids;
  Encoder(tokenizer).encode("he", true, ids);
  CHECK(ids == Ids{256});
}

TEST_CASE("a space stands in front of what begins without one") {
  Json json = definition();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const File file(json);
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.encode("t t") == Ids{259, 259});
  CHECK(tokenizer.encode(" t<|endoftext|>t") == Ids{259, 260, 259});
  Ids ids;
  Encoder(tokenizer).encode("t<|endoftext|>t", false, ids);  // the rest of a document
  CHECK(ids == Ids{'t', 260, 259});
}

TEST_CASE("a text is cut where no token changes, and nowhere when an added token could reach over it") {
  const File file(definition());
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.last_cut("hello the world") == 9);
  CHECK(tokenizer.last_cut("hello the ") == 9);
  CHECK(tokenizer.last_cut("hello  ") == 5);
  CHECK(tokenizer.last_cut("hello") == 0);
  CHECK(tokenizer.last_cut("") == 0);
  CHECK(tokenizer.last_cut("\xe4\xb8 a") == 0);  // behind a broken character
  Json json = definition();
  json["added_tokens"].push_back({{"id", 261}, {"content", "two words"}});
  const File other(json);
  CHECK(Tokenizer(other.path()).last_cut("hello the world") == 0);
  json["normalizer"] = {{"type", "NFC"}};
  json["added_tokens"].erase(1);
  const File third(json);
  CHECK(Tokenizer(third.path()).last_cut("a \u212b ") == 1);  // not beside what NFC changes
}

TEST_CASE("a family that adds no end of a document, or two, has none") {
  Json json = definition();
  json["added_tokens"].push_back({{"id", 261}, {"content", "<|end_of_text|>"}});
  CHECK(!Tokenizer(File(json).path()).document_end());
  json["added_tokens"] = Json::array();
  CHECK(!Tokenizer(File(json).path()).document_end());
}

TEST_CASE("a file that would come out differently is refused with its key") {
  Json json = definition();
  json["model"]["byte_fallback"] = true;
  const File file(json);
  CHECK_THAT(error_of<UserError>([&] { Tokenizer tokenizer(file.path()); }),
             Contains(file.path()) && Contains("model.byte_fallback is true; it must be false"));
}
