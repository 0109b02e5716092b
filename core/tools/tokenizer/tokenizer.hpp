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

// Several threads may use one at the same time.
class Tokenizer {
 public:
  // `path`: a tokenizer.json, or the folder that holds it. Throws UserError with file, key, value and rule for what
  // Strata does not do as that library does.
  explicit Tokenizer(const std::string& path);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // A document with what the tokenizer's template puts around it. For many documents an Encoder is faster.
  std::vector<std::uint32_t> encode(std::string_view text) const;
  // The bytes of the tokens, special ones too. Not `first`: they follow other tokens, from which some decoders separate
  // them. Throws UserError for an id without a token.
  std::string decode(std::span<const std::uint32_t> ids, bool first = true) const;

  std::uint32_t vocabulary_size() const;  // the largest id and 1
  // <|endoftext|> or <|end_of_text|>, whichever the tokenizer adds; none where it adds neither, or both.
  std::optional<std::uint32_t> document_end() const;
  const std::vector<std::uint32_t>& before() const;  // what the template puts in front of a document: Llama 3's begin
  const std::vector<std::uint32_t>& behind() const;

  // Keys of the file that are not obeyed, each with its value and the reason.
  const std::vector<std::string>& notes() const;

  // A position of a document at which it may be cut without changing a token, the last one in front of its end, for all
  // that may follow; 0 where there is none.
  std::size_t last_cut(std::string_view text) const;

 private:
  friend class Encoder;
  std::string path_;
  std::unique_ptr<const Tables> tables_;
};

// Remembers words. One thread's; the tokenizer outlives it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer);
  ~Encoder();
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  // Appends the tokens of a document, or of a part of it between cuts, without those of the template.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids);
  // The bytes of all texts so far that have no token and are left out, as in that library.
  std::uint64_t left_out() const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace strata::tokenizer
