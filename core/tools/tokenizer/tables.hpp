#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/tokenizer/added_tokens.hpp"
#include "tools/tokenizer/definition.hpp"
#include "tools/tokenizer/merges.hpp"

namespace strata::tokenizer {

// A definition, made ready to encode and decode with.
struct Tables {
  explicit Tables(Definition read);

  Definition definition;
  Merges merges;
  std::unordered_map<std::string, std::uint32_t> words;  // by their bytes, where a word that is a token needs no merge
  AddedTokenFinder raw_tokens, normalized_tokens;
  std::unordered_map<std::uint32_t, std::string> text_of_id;  // as decoded
  std::uint32_t vocabulary_size = 0;                          // the largest id and 1

  // Where a text may be cut, besides at the end of a word.
  bool may_cut = true;                    // no added token reaches over the end of a word
  bool in_front_of_spaces = false;        // an added token takes the spaces in front of it: cut there only
  std::set<char32_t> takes_what_follows;  // with these end added tokens that take the spaces behind them

 private:
  void set_text(const std::string& token, std::uint32_t id);
  void add(AddedToken token);
};

}  // namespace strata::tokenizer
