#include "tools/tokenizer/word_steps.hpp"

#include "catch.hpp"
#include "error_of.hpp"

using namespace strata::tokenizer;
using Json = nlohmann::json;

namespace {

const Json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}};

Json split(const std::string& behavior, bool invert) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", split_patterns()[1].expression}}},
          {"behavior", behavior},
          {"invert", invert}};
}

template <typename... Parts>
Json sequence(const Parts&... parts) {
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({parts...})}};
}

Json digits(bool each) {
  return {{"type", "Digits"}, {"individual_digits", each}};
}

std::vector<WordStep> steps_of(const Json& json) {
  const std::string file = "t.json";
  return read_word_steps(Value(file, "pre_tokenizer", json));
}

std::string kinds_of(const Json& json) {
  std::string kinds;
  for (const WordStep& step : steps_of(json)) kinds += "PDEW"[static_cast<int>(step.kind)];
  return kinds;
}

std::string refused(const Json& json) {
  return error_of<strata::UserError>([&] { steps_of(json); });
}

std::vector<std::string> pieces(const WordStep& step, const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t position = 0; position < text.size();) {
    const std::size_t end = end_of_piece(step, text, position);
    found.push_back(text.substr(position, end - position));
    position = end;
  }
  return found;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("pre-tokenizers that are read, alone and in sequences of sequences") {
  CHECK(kinds_of(byte_level) == "W");
  CHECK(kinds_of({{"type", "ByteLevel"}}) == "PW");
  CHECK(kinds_of(sequence(sequence(byte_level))) == "W");
  const Json alone{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  CHECK(kinds_of(sequence(split("Isolated", false), alone)) == "W");
  CHECK(kinds_of(sequence(split("Removed", true), byte_level)) == "WW");
  CHECK(kinds_of(sequence(digits(true), byte_level)) == "EW");
  CHECK(kinds_of(sequence(digits(false), split("MergedWithNext", true), alone)) == "DW");
}

TEST_CASE("a pre-tokenizer that would cut otherwise is refused with its key") {
  CHECK_THAT(refused(nullptr), Contains("t.json: pre_tokenizer is null"));
  CHECK_THAT(refused(sequence()), Contains("its last part must be a ByteLevel"));
  CHECK_THAT(refused(sequence(byte_level, split("Isolated", false))), Contains("its last part must be a ByteLevel"));
  CHECK_THAT(refused(sequence(byte_level, byte_level)), Contains("pretokenizers[0].type is \"ByteLevel\""));
  CHECK_THAT(refused(sequence(split("Removed", false), byte_level)), Contains("behavior is \"Removed\""));
  CHECK_THAT(refused(sequence(split("Contiguous", true), byte_level)), Contains("behavior is \"Contiguous\""));
  CHECK_THAT(refused({{"type", "ByteLevel"}, {"use_regex", false}}), Contains("pre_tokenizer.use_regex is false"));
}

TEST_CASE("digits are cut from others, together or each") {
  const std::string text = "a12b\u00b2\u06613 4";
  CHECK(pieces({WordStep::Kind::Digits}, text) == Words{"a", "12", "b", "\u00b2\u06613", " ", "4"});
  CHECK(pieces({WordStep::Kind::EachDigit}, text) == Words{"a", "1", "2", "b", "\u00b2", "\u0661", "3", " ", "4"});
}
