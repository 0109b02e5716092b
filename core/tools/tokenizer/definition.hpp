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

// What a tokenizer.json says, checked.
struct Definition {
  // What stands between the tokens of a text that is decoded, and what each is.
  enum class Decoder {
    Bytes,   // ByteLevel: the bytes that the characters of a token stand for
    Joined,  // a Sequence of nothing: the tokens as the file has them
    Spaced   // null: the same with spaces between
  };

  std::unordered_map<std::string, std::uint32_t> vocabulary;  // by the token as the file has it
  std::vector<std::pair<std::string, std::string>> merges;    // the first one goes first
  bool ignore_merges = false;                                 // a word that is a token needs no merge
  UnknownByte unknown;                                        // bytes without a token
  bool nfc = false;
  std::vector<WordStep> word_steps;
  std::vector<AddedToken> added;
  std::vector<std::uint32_t> before, behind;  // each document, by the template
  Decoder decoder = Decoder::Bytes;
  std::vector<std::string> notes;  // keys of the file that are not obeyed, each with the reason
};

// Reads a tokenizer.json as Hugging Face's library writes it. Throws UserError with file, key, value and rule for what
// is no such file, and for everything in it that Strata would not do as that library does.
Definition read_definition(const std::string& path);

// Throws UserError for a token that tokenizer_config.json or added_tokens.json of the folder adds and tokenizer.json
// lacks: transformers adds it.
void refuse_tokens_beside(const std::string& folder, const Definition& definition);

}  // namespace strata::tokenizer
