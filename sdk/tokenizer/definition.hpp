#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/split_pattern.hpp"

namespace strata::tokenizer {

// What a tokenizer.json says, checked.
struct Definition {
  struct AddedToken {
    std::string content;
    std::uint32_t id = 0;
    bool normalized = false;  // is looked for in the normalized text
  };

  std::unordered_map<std::string, std::uint32_t> vocabulary;  // by the token as the file has it
  std::vector<std::pair<std::string, std::string>> merges;    // the first one goes first
  bool ignore_merges = false;                                 // a word that is a token needs no merge
  bool nfc = false;
  bool prefix_space = false;  // in front of text that begins with none
  SplitPattern pattern = SplitPattern::Gpt2;
  std::vector<AddedToken> added;
  std::vector<std::uint32_t> before, behind;  // each document, by the template
};

// Reads a tokenizer.json as Hugging Face's library writes it. Throws UserError with file, key, value and rule for what
// is no such file, and for everything in it that Strata would not do as that library does.
Definition read_definition(const std::string& path);

}  // namespace strata::tokenizer
