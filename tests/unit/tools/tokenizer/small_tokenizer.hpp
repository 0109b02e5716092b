// A tokenizer.json for tests.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "temporary_folder.hpp"
#include "tools/tokenizer/byte_characters.hpp"
#include "tools/tokenizer/utf8.hpp"

inline std::string character_token(unsigned byte) {
  std::string token;
  strata::tokenizer::append_utf8(strata::tokenizer::character_of_byte(static_cast<unsigned char>(byte)), token);
  return token;
}

// Bytes are their own ids; "he", "ll", "hell" and " t" are 256 to 259; <|endoftext|> is 260.
inline nlohmann::json small_tokenizer() {
  using nlohmann::json;
  json vocabulary;
  for (unsigned byte = 0; byte < 256; ++byte) vocabulary[character_token(byte)] = byte;
  vocabulary.update({{"he", 256}, {"ll", 257}, {"hell", 258}, {"\u0120t", 259}});
  return {
      {"version", "1.0"},
      {"added_tokens", {{{"id", 260}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model",
       {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"h e", json::array({"l", "l"}), "he ll", "\u0120 t"}}}}};
}

class TokenizerFile {
 public:
  explicit TokenizerFile(const nlohmann::json& content = small_tokenizer()) { write_file(path(), content.dump()); }
  std::string path() const { return folder_ / "tokenizer.json"; }

 private:
  TemporaryFolder folder_;
};
