#include "tokenizer/tokenizer.hpp"

#include <strata/error.hpp>

#include "tokenizer/normalization.hpp"
#include "tokenizer/tables.hpp"
#include "tokenizer/utf8.hpp"
#include "tokenizer/word_cache.hpp"

namespace strata::tokenizer {

class Encoder::Work {
 public:
  explicit Work(const Tables& tables) : tables_(tables) {}

  void encode(std::string_view text, std::vector<std::uint32_t>& ids) {
    each_piece(tables_.raw_tokens, valid_utf8(text, repaired_), ids, [&](std::string_view piece) {
      if (tables_.definition.nfc) piece = normalized(piece, normalized_);
      each_piece(tables_.normalized_tokens, piece, ids, [&](std::string_view part) { encode_piece(part, ids); });
    });
  }

 private:
  // Calls `work` for what stands between added tokens, and appends theirs.
  template <typename Function>
  void each_piece(const AddedTokenFinder& tokens, std::string_view text, std::vector<std::uint32_t>& ids,
                  const Function& work) {
    for (std::size_t position = 0; position < text.size();) {
      const AddedTokenFinder::Match match = tokens.find(text, position);
      if (match.begin > position) work(text.substr(position, match.begin - position));
      if (match.end > match.begin) ids.push_back(match.id);
      position = match.end;
    }
  }

  void encode_piece(std::string_view text, std::vector<std::uint32_t>& ids) {
    if (tables_.definition.prefix_space && text.front() != ' ') {
      prefixed_.assign(" ").append(text);
      text = prefixed_;
    }
    for (std::size_t position = 0; position < text.size();) {
      const std::size_t end = end_of_word(tables_.definition.pattern, text, position);
      encode_word(text.substr(position, end - position), ids);
      position = end;
    }
  }

  void encode_word(std::string_view word, std::vector<std::uint32_t>& ids) {
    if (word.size() > WordCache::longest_word) return apply_merges(word, ids);
    std::span<const std::uint32_t> known = cache_.find(word);
    if (known.empty()) {
      const std::size_t begin = ids.size();
      apply_merges(word, ids);
      cache_.insert(word, std::span(ids).subspan(begin));
      return;
    }
    known.size() == 1 ? ids.push_back(known[0]) : void(ids.insert(ids.end(), known.begin(), known.end()));
  }

  void apply_merges(std::string_view word, std::vector<std::uint32_t>& ids) {
    if (tables_.definition.ignore_merges) {
      const auto found = tables_.words.find(std::string(word));
      if (found != tables_.words.end()) return ids.push_back(found->second);
    }
    tables_.merges.apply(word, ids);
  }

  const Tables& tables_;
  WordCache cache_;
  std::string repaired_, normalized_, prefixed_;
};

Encoder::Encoder(const Tokenizer& tokenizer) : work_(std::make_unique<Work>(*tokenizer.tables_)) {}

Encoder::~Encoder() = default;

void Encoder::encode(std::string_view text, std::vector<std::uint32_t>& ids) {
  work_->encode(text, ids);
}

Tokenizer::Tokenizer(const std::string& path)
    : path_(path), tables_(std::make_unique<const Tables>(read_definition(path))) {}

Tokenizer::~Tokenizer() = default;

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> ids = before();
  Encoder(*this).encode(text, ids);
  ids.insert(ids.end(), behind().begin(), behind().end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids) const {
  std::string text;
  for (const std::uint32_t id : ids) {
    if (id >= vocabulary_size() || tables_->bytes_of_id[id].empty()) {
      throw UserError(Place{path_}, "has no token " + std::to_string(id) + "; its ids are 0 to " +
                                        std::to_string(vocabulary_size() - 1) +
                                        ": take the tokenizer that the tokens were made with");
    }
    text += tables_->bytes_of_id[id];
  }
  return text;
}

std::uint32_t Tokenizer::vocabulary_size() const {
  return static_cast<std::uint32_t>(tables_->bytes_of_id.size());
}

std::optional<std::uint32_t> Tokenizer::document_end() const {
  std::optional<std::uint32_t> end;
  for (const Definition::AddedToken& token : tables_->definition.added) {
    if (token.content != "<|endoftext|>" && token.content != "<|end_of_text|>") continue;
    if (end) return std::nullopt;
    end = token.id;
  }
  return end;
}

const std::vector<std::uint32_t>& Tokenizer::before() const {
  return tables_->definition.before;
}

const std::vector<std::uint32_t>& Tokenizer::behind() const {
  return tables_->definition.behind;
}

std::size_t Tokenizer::last_cut(std::string_view text) const {
  if (!tables_->may_cut) return 0;
  const auto is_middle = [&](std::size_t position) {
    return (static_cast<unsigned char>(text[position]) & 0xc0) == 0x80;
  };
  std::size_t behind = text.size();  // where the character behind the cut begins
  while (behind > 0) {
    std::size_t begin = behind - 1;
    while (begin > 0 && is_middle(begin)) --begin;
    const Sequence left = sequence_at(text, begin), right = sequence_at(text, behind);
    if (behind < text.size() && left.valid && begin + left.bytes == behind && right.valid) {
      const char32_t before = character_at(text, begin).code, next = character_at(text, behind).code;
      const bool stays =
          !tables_->definition.nfc || (normalization_begins_anew(before) && normalization_begins_anew(next));
      // What begins with a space gets no other one in front.
      const bool needs_none = !tables_->definition.prefix_space || next == U' ';
      if (stays && needs_none && always_between_words(tables_->definition.pattern, before, next)) return behind;
    }
    behind = begin;
  }
  return 0;
}

}  // namespace strata::tokenizer
