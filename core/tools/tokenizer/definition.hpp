#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tools/tokenizer/added_tokens.hpp"
#include "tools/tokenizer/merges.hpp"
#include "tools/tokenizer/word_steps.hpp"

namespace strata::tokenizer {

// Checked content of a tokenizer.json.
struct Definition {
  // Joining of the tokens of a decoded text, and their meaning.
  enum class Decoder {
    Bytes,   // ByteLevel: the bytes of a token's characters
    Joined,  // an empty Sequence: the tokens as in the file
    Spaced   // null: the tokens as in the file, separated by spaces
  };

  std::unordered_map<std::string, std::uint32_t> vocabulary;  // ids by token, as in the file
  std::vector<std::pair<std::string, std::string>> merges;    // in order of priority
  bool ignore_merges = false;                                 // a word that is a token is not merged
  UnknownByte unknown;                                        // bytes without a token
  bool nfc = false;
  std::vector<WordStep> word_steps;
  std::vector<AddedToken> added;
  std::vector<std::uint32_t> before, behind;  // tokens before and after each document, by the template
  Decoder decoder = Decoder::Bytes;
  std::vector<std::string> notes;  // keys of the file that are not used, each with the reason
};

// Reads a tokenizer.json as written by Hugging Face's library. Throws UserError with file, key, value and rule for any
// other file, and for content that Strata would not handle as that library does.
Definition read_definition(const std::string& path);

// Throws UserError for a token that tokenizer_config.json or added_tokens.json of the folder adds and tokenizer.json
// lacks, because transformers adds it.
void refuse_tokens_beside(const std::string& folder, const Definition& definition);

}  // namespace strata::tokenizer
