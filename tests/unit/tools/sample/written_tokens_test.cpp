#include "tools/sample/written_tokens.hpp"

#include "error_of.hpp"
#include "unit/tools/tokenizer/small_tokenizer.hpp"

using namespace strata;
using sample::WrittenTokens;

using Ids = std::vector<std::int64_t>;

TEST_CASE("without a tokenizer bytes are tokens, and 0 ends a document") {
  const WrittenTokens written("");
  CHECK((written.read("a\xc3\xa9") == Ids{97, 195, 169}));
  CHECK(written.write(195) == "\xc3");
  CHECK(written.known() == 256);
  CHECK(written.document_end() == 0);
  CHECK(written.name() == "bytes");
}

TEST_CASE("a tokenizer reads and writes, and knows its end of a document") {
  const TokenizerFile file;
  const WrittenTokens written(file.path());
  CHECK((written.read("hello t") == Ids{258, 'o', 259}));
  CHECK(written.write(258) == "hell");
  CHECK(written.known() == 261);
  CHECK(written.document_end() == 260);
}

TEST_CASE("the tokenizer's template is applied before a text, not after it") {
  nlohmann::json content = small_tokenizer();
  content["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
        {{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}}}},
      {"pair", nlohmann::json::array()},
      {"special_tokens",
       {{"<|endoftext|>", {{"id", "<|endoftext|>"}, {"ids", {260}}, {"tokens", {"<|endoftext|>"}}}}}}};
  const TokenizerFile file(content);
  CHECK((WrittenTokens(file.path()).read("hell") == Ids{260, 258}));
}

TEST_CASE("numbers are read and written as such") {
  const WrittenTokens written = WrittenTokens::as_numbers();
  CHECK((written.read("5, 17 3") == Ids{5, 17, 3}));
  CHECK(written.read("").empty());
  CHECK(written.write(70000) == " 70000");
  CHECK_FALSE(written.known());
  CHECK_FALSE(written.document_end());
  for (const char* const wrong : {"5,x", "-1", "1.5", "99999999999999999999"})
    CHECK_THAT(error_of([&] { (void)written.read(wrong); }), Contains(wrong) && Contains("numbers from 0 on"));
}
