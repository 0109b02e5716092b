#pragma once
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tokenizer/added_tokens.hpp"
#include "tokenizer/definition.hpp"
#include "tokenizer/merges.hpp"

namespace strata::tokenizer {

// A definition, made ready to encode and decode with.
struct Tables {
  explicit Tables(Definition read);

  Definition definition;
  Merges merges;
  std::unordered_map<std::string, std::uint32_t> words;  // by their bytes, where a word that is a token needs no merge
  AddedTokenFinder raw_tokens, normalized_tokens;
  std::vector<std::string> bytes_of_id;  // empty where there is no token
  bool may_cut = true;                   // no added token reaches over the end of a word
};

}  // namespace strata::tokenizer
