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

// A definition, prepared for encoding and decoding.
struct Tables {
  explicit Tables(Definition read);

  Definition definition;
  Merges merges;
  std::unordered_map<std::string, std::uint32_t> words;  // by their bytes, if a word that is a token is not merged
  AddedTokenFinder raw_tokens, normalized_tokens;
  std::unordered_map<std::uint32_t, std::string> text_of_id;  // decoded text by id
  std::uint32_t vocabulary_size = 0;                          // the largest id plus 1

  // Places where a text may be cut, besides the end of a word.
  bool may_cut = true;                    // true: no added token spans the end of a word
  bool in_front_of_spaces = false;        // true: an added token takes preceding spaces, so cuts are before these only
  std::set<char32_t> takes_what_follows;  // last characters of added tokens that take following spaces

 private:
  void set_text(const std::string& token, std::uint32_t id);
  void add(AddedToken token);
};

}  // namespace strata::tokenizer
