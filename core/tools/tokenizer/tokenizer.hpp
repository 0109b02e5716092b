// Text to tokens and back, as Hugging Face's library `tokenizers` does it, token for token: the byte-level BPE of
// GPT-2, GPT-NeoX (Pythia), Llama 3, Qwen2 and their kin, read from a tokenizer.json.
//
// An added token that stands in a text becomes its id, special ones too, as that library does by default. Bytes that
// are no UTF-8 count as U+FFFD, as in Python's bytes.decode(errors="replace").
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::tokenizer {

struct Tables;

// A tokenizer; thread-safe.
class Tokenizer {
 public:
  // Reads `path`: a tokenizer.json, or its folder. Throws UserError with file, key, value and rule for content that
  // Strata would not handle as that library does.
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Returns the tokens of a document, with those of the tokenizer's template. For many documents an Encoder is faster.
  std::vector<std::uint32_t> encode(std::string_view text) const;
  // Returns the bytes of tokens, including special ones. `first` false: they follow other tokens, from which some
  // decoders separate them. Throws UserError for an id without a token.
  std::string decode(std::span<const std::uint32_t> ids, bool first = true) const;

  std::uint32_t vocabulary_size() const;  // returns the largest id plus 1
  // Returns the id of <|endoftext|> or <|end_of_text|>, if the tokenizer adds exactly one of them.
  std::optional<std::uint32_t> document_end() const;
  const std::vector<std::uint32_t>& before() const;  // tokens before a document by the template: Llama 3's begin
  const std::vector<std::uint32_t>& behind() const;

  // Returns the keys of the file that are not used, each with its value and the reason.
  const std::vector<std::string>& notes() const;

  // Returns the last position before the end of a document at which it can be cut without changing a token, whatever
  // follows; 0: there is none.
  std::size_t last_cut(std::string_view text) const;

 private:
  friend class Encoder;
  std::string path_;
  std::unique_ptr<const Tables> tables_;
};

// Encoder with a cache of words, for one thread; the tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Appends the tokens of a document, or of a part between cuts, without those of the template.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids);
  // Returns the number of bytes so far that have no token and are omitted, as by that library.
  std::uint64_t left_out() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace strata::tokenizer
