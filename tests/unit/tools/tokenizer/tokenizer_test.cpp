#include "tools/tokenizer/tokenizer.hpp"

#include <strata/error.hpp>

#include <filesystem>
#include <random>

#include "catch.hpp"
#include "error_of.hpp"
#include "tools/tokenizer/split_pattern.hpp"
#include "unit/tools/tokenizer/small_tokenizer.hpp"

using strata::UserError;
using strata::tokenizer::Encoder;
using strata::tokenizer::NamedPattern;
using strata::tokenizer::split_patterns;
using strata::tokenizer::SplitPattern;
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
  Encoder(tokenizer).encode("he", ids);
  CHECK(ids == Ids{256});
}

TEST_CASE("a text without a leading space gets one") {
  Json json = small_tokenizer();
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const TokenizerFile file(json);
  const Tokenizer tokenizer(file.path());
  CHECK(tokenizer.encode("t t") == Ids{259, 259});
  CHECK(tokenizer.encode(" t<|endoftext|>t") == Ids{259, 260, 259});
  // A part behind a cut gets no space that the whole does not have there.
  CHECK(tokenizer.last_cut("<|endoftext|>\tt t\t") == 15);
  CHECK(tokenizer.last_cut("<|endoftext|>\tt\t") == 0);
}

TEST_CASE("a text is cut only where no token changes") {
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

TEST_CASE("parts between cuts have the tokens of the whole") {
  const char* const pieces[] = {
      "hell",     "o",   " ",       "  ",     "\n",     "\r\n",   "\t",           "\u00a0", "\u3000", ".",
      "'LL",      "123", "e\u0301", "\u0323", "\u08ca", "\u212b", "\u1112\u1161", "\u11ab", "\u4e16", "<|endoftext|>",
      "\xf0\x9f", "\xff"};
  std::mt19937 random(5);
  for (const NamedPattern& known : split_patterns()) {
    for (const bool prefix : {false, true}) {
      for (const bool nfc : {false, true}) {
        Json json = small_tokenizer();
        if (nfc) json["normalizer"] = {{"type", "NFC"}};
        json["pre_tokenizer"]["add_prefix_space"] = prefix;
        if (known.pattern != SplitPattern::Gpt2) {
          if (prefix) continue;
          json["pre_tokenizer"]["use_regex"] = false;
          const Json split{{"type", "Split"}, {"pattern", {{"Regex", known.expression}}}, {"behavior", "Isolated"}};
          json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, json["pre_tokenizer"]}}};
        }
        const TokenizerFile file(json);
        const Tokenizer tokenizer(file.path());
        int cuts = 0;
        for (int time = 0; time < 500; ++time) {
          std::string text;
          for (std::size_t count = random() % 30; count > 0; --count) text += pieces[random() % std::size(pieces)];
          Ids parts;
          for (std::string_view rest = text; !rest.empty(); ++cuts) {
            const std::size_t cut = tokenizer.last_cut(rest);
            const Ids ids = tokenizer.encode(rest.substr(cut));
            parts.insert(parts.begin(), ids.begin(), ids.end());
            rest = rest.substr(0, cut);
          }
          INFO(known.expression << ", prefix " << prefix << ", NFC " << nfc << ": "
                                << Json(text).dump(-1, ' ', true, Json::error_handler_t::replace));
          CHECK(parts == tokenizer.encode(text));
        }
        CHECK(cuts > 600);
      }
    }
  }
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
  json["model"]["end_of_word_suffix"] = "</w>";
  const TokenizerFile file(json);
  CHECK_THAT(error_of<UserError>([&] { Tokenizer tokenizer(file.path()); }),
             Contains(file.path()) && Contains("model.end_of_word_suffix is \"</w>\"; it must be empty"));
}

TEST_CASE("a vocabulary without the bytes that no text has, as Pythia's, is read") {
  Json json = small_tokenizer();
  for (const unsigned byte : {0xc0, 0xc1, 0xf5, 0xff}) json["model"]["vocab"].erase(character_token(byte));
  json["added_tokens"] = Json::array();
  const Tokenizer tokenizer(TokenizerFile(json).path());
  const std::string text = "he \u00e9\xff\U0010ffff";
  CHECK(tokenizer.encode(text).size() == 11);
  CHECK(tokenizer.decode(tokenizer.encode(text)) == "he \u00e9\ufffd\U0010ffff");
}

TEST_CASE("bytes without a token are left out and counted, also in words that come again") {
  Json json = small_tokenizer();
  json["model"]["vocab"].erase("x");
  json["added_tokens"] = Json::array();
  const TokenizerFile file(json);
  const Tokenizer tokenizer(file.path());
  Encoder encoder(tokenizer);
  Ids ids;
  for (int time = 0; time < 3; ++time) encoder.encode("xhxex x", ids);
  CHECK(ids == Ids{256, ' ', 256, ' ', 256, ' '});
  CHECK(encoder.left_out() == 12);
}

TEST_CASE("without a decoder tokens are written as the file has them, with spaces between") {
  Json json = small_tokenizer();
  json["decoder"] = nullptr;
  const Tokenizer tokenizer(TokenizerFile(json).path());
  CHECK(tokenizer.decode(Ids{256, 259, 260}) == "he \u0120t <|endoftext|>");
  CHECK(tokenizer.decode(Ids{259}, false) == " \u0120t");
}

TEST_CASE("saved truncation and padding are told and not used") {
  Json json = small_tokenizer();
  json["truncation"] = {{"max_length", 1}};
  json["padding"] = {{"strategy", "BatchLongest"}};
  const Tokenizer tokenizer(TokenizerFile(json).path());
  CHECK(tokenizer.encode("the the").size() == 4);
  REQUIRE(tokenizer.notes().size() == 2);
  CHECK_THAT(tokenizer.notes()[0], Contains("truncation is {\"max_length\":1}; it is not used"));
}

TEST_CASE("the folder that holds a tokenizer.json names it") {
  const TokenizerFile file(small_tokenizer());
  const std::string folder = file.path().substr(0, file.path().rfind('/'));
  CHECK(Tokenizer(folder).vocabulary_size() == 261);
  std::filesystem::remove(file.path());
  CHECK_THAT(error_of<UserError>([&] { Tokenizer tokenizer(folder); }),
             Contains("is a folder without a tokenizer.json"));
}

TEST_CASE("an id far behind the others takes no memory") {
  Json json = small_tokenizer();
  json["model"]["vocab"]["zz"] = 2147483646;
  json["added_tokens"] = Json::array();
  const Tokenizer tokenizer(TokenizerFile(json).path());
  CHECK(tokenizer.vocabulary_size() == 2147483647);
  CHECK(tokenizer.decode(Ids{2147483646}) == "zz");
}

TEST_CASE("two added tokens that NFC makes equal are refused") {
  Json json = small_tokenizer();
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  json["added_tokens"].push_back({{"id", 261}, {"content", "\u2126"}});
  json["added_tokens"].push_back({{"id", 262}, {"content", "\u03a9"}});
  CHECK_THAT(error_of<UserError>([&] { Tokenizer tokenizer(TokenizerFile(json).path()); }),
             Contains("added_tokens[2].content") && Contains("by chance"));
  json["added_tokens"][2]["normalized"] = false;
  CHECK_NOTHROW(Tokenizer(TokenizerFile(json).path()));
}

TEST_CASE("a text is not cut beside the spaces that an added token takes") {
  Json json = small_tokenizer();
  json["added_tokens"].push_back({{"id", 261}, {"content", "<r>"}, {"rstrip", true}, {"normalized", false}});
  const TokenizerFile right(json);
  CHECK(Tokenizer(right.path()).last_cut("a <r> b") == 1);
  CHECK(Tokenizer(right.path()).last_cut("a <r>. b") == 6);
  json["added_tokens"][1]["rstrip"] = false;
  json["added_tokens"][1]["lstrip"] = true;
  const Json split{
      {"type", "Split"}, {"pattern", {{"Regex", split_patterns()[1].expression}}}, {"behavior", "Isolated"}};
  json["pre_tokenizer"]["use_regex"] = false;
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, json["pre_tokenizer"]}}};
  const TokenizerFile left(json);
  CHECK(Tokenizer(left.path()).last_cut("a b\nc") == 3);  // and not behind the line break
}
