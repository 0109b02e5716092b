#include "tools/tokenizer/tokenizer.hpp"

#include <strata/error.hpp>

#include <filesystem>
#include <system_error>

#include "tools/tokenizer/character_class.hpp"
#include "tools/tokenizer/normalization.hpp"
#include "tools/tokenizer/tables.hpp"
#include "tools/tokenizer/utf8.hpp"
#include "tools/tokenizer/word_cache.hpp"

namespace strata::tokenizer {

class Encoder::Work {
 public:
  explicit Work(const Tables& tables) : tables_(tables) {}

  void encode(std::string_view text, std::vector<std::uint32_t>& ids) {
    const auto put = [&](const AddedToken& token) { ids.push_back(token.id); };
    tables_.raw_tokens.split(
        valid_utf8(text, repaired_),
        [&](std::string_view piece) {
          if (tables_.definition.nfc) piece = normalized(piece, normalized_);
          tables_.normalized_tokens.split(
              piece, [&](std::string_view part) { encode_piece(part, 0, ids); }, put);
        },
        put);
  }

  std::uint64_t left_out() const { return left_out_; }

 private:
  // Takes the steps that cut text into words from this one on.
  void encode_piece(std::string_view text, std::size_t index, std::vector<std::uint32_t>& ids) {
    if (index == tables_.definition.word_steps.size()) return encode_word(text, ids);
    const WordStep& step = tables_.definition.word_steps[index];
    if (step.kind == WordStep::Kind::PrefixSpace) {
      if (text.front() == ' ') return encode_piece(text, index + 1, ids);
      prefixed_.assign(" ").append(text);
      return encode_piece(prefixed_, index + 1, ids);
    }
    for (std::size_t position = 0; position < text.size();) {
      const std::size_t end = end_of_piece(step, text, position);
      encode_piece(text.substr(position, end - position), index + 1, ids);
      position = end;
    }
  }

  void encode_word(std::string_view word, std::vector<std::uint32_t>& ids) {
    if (word.size() > WordCache::longest_word) return apply_merges(word, ids);
    std::span<const std::uint32_t> known = cache_.find(word);
    if (known.empty()) {
      const std::size_t begin = ids.size();
      const std::uint64_t left_out = left_out_;
      apply_merges(word, ids);
      if (left_out_ == left_out) cache_.insert(word, std::span(ids).subspan(begin));
      return;
    }
    known.size() == 1 ? ids.push_back(known[0]) : void(ids.insert(ids.end(), known.begin(), known.end()));
  }

  void apply_merges(std::string_view word, std::vector<std::uint32_t>& ids) {
    if (tables_.definition.ignore_merges) {
      const auto found = tables_.words.find(std::string(word));
      if (found != tables_.words.end()) return ids.push_back(found->second);
    }
    left_out_ += tables_.merges.apply(word, ids);
  }

  const Tables& tables_;
  WordCache cache_;
  std::string repaired_, normalized_, prefixed_;
  std::uint64_t left_out_ = 0;
};

Encoder::Encoder(const Tokenizer& tokenizer) : work_(std::make_unique<Work>(*tokenizer.tables_)) {}

Encoder::~Encoder() = default;

void Encoder::encode(std::string_view text, std::vector<std::uint32_t>& ids) {
  work_->encode(text, ids);
}

std::uint64_t Encoder::left_out() const {
  return work_->left_out();
}

namespace {

std::string file_of(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const std::string file = std::filesystem::path(path) / "tokenizer.json";
  if (std::filesystem::exists(file, ignored)) return file;
  throw UserError(Place{path},
                  "is a folder without a tokenizer.json; save the tokenizer with Hugging Face's library "
                  "(AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)), or name another folder");
}

// `file`: that of a path which may be its folder.
Definition definition_of(const std::string& path, const std::string& file) {
  Definition definition = read_definition(file);
  if (file != path) refuse_tokens_beside(path, definition);
  return definition;
}

}  // namespace

Tokenizer::Tokenizer(const std::string& path)
    : path_(file_of(path)), tables_(std::make_unique<const Tables>(definition_of(path, path_))) {}

Tokenizer::~Tokenizer() = default;

std::vector<std::uint32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::uint32_t> ids = before();
  Encoder(*this).encode(text, ids);
  ids.insert(ids.end(), behind().begin(), behind().end());
  return ids;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool first) const {
  std::string text;
  for (const std::uint32_t id : ids) {
    const auto found = tables_->text_of_id.find(id);
    if (found == tables_->text_of_id.end()) {
      throw UserError(Place{path_}, "has no token {}; its ids are 0 to {}: give the tokenizer that made the tokens", id,
                      vocabulary_size() - 1);
    }
    if (!first && tables_->definition.decoder == Definition::Decoder::Spaced) text += ' ';
    first = false;
    text += found->second;
  }
  return text;
}

std::uint32_t Tokenizer::vocabulary_size() const {
  return tables_->vocabulary_size;
}

const std::vector<std::string>& Tokenizer::notes() const {
  return tables_->definition.notes;
}

std::optional<std::uint32_t> Tokenizer::document_end() const {
  std::optional<std::uint32_t> end;
  for (const AddedToken& token : tables_->definition.added) {
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
      const bool spaces_follow = (CharacterTable::instance().class_of(next) & Space) != 0;
      const bool spaces_stay =
          (spaces_follow || !tables_->in_front_of_spaces) && !tables_->takes_what_follows.contains(before);
      if (stays && spaces_stay && always_between_words(tables_->definition.word_steps, before, next)) return behind;
    }
    behind = begin;
  }
  return 0;
}

}  // namespace strata::tokenizer
