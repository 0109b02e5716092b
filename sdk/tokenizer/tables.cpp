#include "tokenizer/tables.hpp"

#include <algorithm>
#include <utility>

#include "tokenizer/byte_characters.hpp"
#include "tokenizer/character_class.hpp"
#include "tokenizer/normalization.hpp"
#include "tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

Merges merges_of(const Definition& definition) {
  const auto id_of = [&](const std::string& token) { return definition.vocabulary.at(token); };
  std::vector<std::uint32_t> bytes;
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string token;
    append_utf8(character_of_byte(static_cast<unsigned char>(byte)), token);
    bytes.push_back(id_of(token));
  }
  Merges merges(std::move(bytes), definition.merges.size());
  std::uint32_t rank = 0;
  for (const auto& [left, right] : definition.merges) {
    merges.add(id_of(left), id_of(right), {rank++, id_of(left + right)});
  }
  return merges;
}

// What a cut could separate has a space and something else.
bool may_be_cut(const std::string& token) {
  const CharacterTable& table = CharacterTable::instance();
  std::uint8_t classes = 0;
  for (std::size_t position = 0; position < token.size();) {
    const Character character = character_at(token, position);
    classes |= table.class_of(character.code);
    position += character.bytes;
  }
  return (classes & Space) != 0 && (classes & (Letter | Number | Other)) != 0;
}

}  // namespace

Tables::Tables(Definition read) : definition(std::move(read)), merges(merges_of(definition)) {
  const auto set_bytes = [&](const std::string& token, std::uint32_t id) {
    if (bytes_of_id.size() <= id) bytes_of_id.resize(id + 1);
    bytes_of_id[id] = bytes_of_token(token).value_or(token);
  };
  for (const auto& [token, id] : definition.vocabulary) {
    set_bytes(token, id);
    const std::optional<std::string> bytes = bytes_of_token(token);
    if (bytes && definition.ignore_merges) words.emplace(*bytes, id);
  }
  std::string changed;
  for (const Definition::AddedToken& token : definition.added) {
    set_bytes(token.content, token.id);
    const bool normalizes = token.normalized && definition.nfc;
    const std::string content(normalizes ? normalized(token.content, changed) : token.content);
    (token.normalized ? normalized_tokens : raw_tokens).add(content, token.id);
    may_cut = may_cut && !may_be_cut(content);
  }
  raw_tokens.prepare();
  normalized_tokens.prepare();
}

}  // namespace strata::tokenizer
