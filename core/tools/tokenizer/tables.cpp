#include "tools/tokenizer/tables.hpp"

#include <algorithm>
#include <utility>

#include "tools/tokenizer/byte_characters.hpp"
#include "tools/tokenizer/character_class.hpp"
#include "tools/tokenizer/normalization.hpp"
#include "tools/tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

Merges merges_of(const Definition& definition) {
  const auto id_of = [&](const std::string& token) { return definition.vocabulary.at(token); };
  std::vector<std::uint32_t> bytes;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(character_of_byte(static_cast<unsigned char>(byte)), token);
    const auto found = definition.vocabulary.find(token);
    bytes.push_back(found == definition.vocabulary.end() ? Merges::none : found->second);
  }
  Merges merges(std::move(bytes), definition.merges.size(), definition.unknown);
  std::uint32_t rank = 0;
  for (const auto& [left, right] : definition.merges) {
    merges.add(id_of(left), id_of(right), {rank++, id_of(left + right)});
  }
  return merges;
}

// The classes of a text's characters together.
std::uint8_t classes_of(const std::string& text) {
  std::uint8_t classes = 0;
  for (std::size_t position = 0; position < text.size();) {
    const Character character = character_at(text, position);
    classes |= CharacterTable::instance().class_of(character.code);
    position += character.bytes;
  }
  return classes;
}

char32_t last_character(const std::string& text) {
  std::size_t begin = text.size() - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) --begin;
  return character_at(text, begin).code;
}

}  // namespace

Tables::Tables(Definition read) : definition(std::move(read)), merges(merges_of(definition)) {
  for (const auto& [token, id] : definition.vocabulary) {
    const std::optional<std::string> bytes = bytes_of_token(token);
    set_text(token, id);
    if (bytes && definition.ignore_merges) words.emplace(*bytes, id);
  }
  for (const AddedToken& token : definition.added) add(token);
}

void Tables::set_text(const std::string& token, std::uint32_t id) {
  text_of_id[id] = definition.decoder == Definition::Decoder::Bytes ? bytes_of_token(token).value_or(token) : token;
  vocabulary_size = std::max(vocabulary_size, id + 1);
}

void Tables::add(AddedToken token) {
  set_text(token.content, token.id);
  if (token.normalized && definition.nfc) {
    std::string changed;
    token.content = std::string(normalized(token.content, changed));
  }
  const std::uint8_t classes = classes_of(token.content);
  const bool spaces = (classes & Space) != 0, others = (classes & (Letter | Number | Other)) != 0;
  // What a cut could separate has a space and something else; beside spaces that are a single word are other words.
  may_cut = may_cut && !(spaces && (others || token.single_word));
  in_front_of_spaces = in_front_of_spaces || token.strips_left;
  if (token.strips_right) takes_what_follows.insert(last_character(token.content));
  (token.normalized ? normalized_tokens : raw_tokens).add(std::move(token));
}

}  // namespace strata::tokenizer
