#include "tools/tokenizer/normalization.hpp"

#include <utf8proc.h>
#include <strata/error.hpp>

#include <vector>

#include "tools/tokenizer/character_class.hpp"
#include "tools/tokenizer/utf8.hpp"

namespace strata::tokenizer {
namespace {

// Of the first character at or behind `position` that NFC may change, or the end.
std::size_t next_change(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const Character character = character_at(text, position);
    if (!normalization_begins_anew(character.code)) break;
    position += character.bytes;
  }
  return position;
}

// Of the first character at or behind `position` at which normalization begins anew, or the end.
std::size_t end_of_changes(std::string_view text, std::size_t position) {
  while (position < text.size()) {
    const Character character = character_at(text, position);
    if (normalization_begins_anew(character.code)) break;
    position += character.bytes;
  }
  return position;
}

std::size_t begin_of_character_before(std::string_view text, std::size_t position) {
  do --position;
  while ((static_cast<unsigned char>(text[position]) & 0xc0) == 0x80);
  return position;
}

void append_nfc(std::string_view part, std::vector<utf8proc_int32_t>& codes, std::string& text) {
  constexpr auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(part.data());
  const auto size = static_cast<utf8proc_ssize_t>(part.size());
  codes.resize(4 * part.size());
  utf8proc_ssize_t count =
      utf8proc_decompose(bytes, size, codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options);
  if (count > static_cast<utf8proc_ssize_t>(codes.size())) {
    codes.resize(static_cast<std::size_t>(count));
    count = utf8proc_decompose(bytes, size, codes.data(), count, options);
  }
  if (count > 0) count = utf8proc_normalize_utf32(codes.data(), count, options);
  strata_check(count >= 0, "utf8proc takes valid UTF-8 that fits into memory");
  for (utf8proc_ssize_t index = 0; index < count; ++index) {
    append_utf8(static_cast<char32_t>(codes[static_cast<std::size_t>(index)]), text);
  }
}

// Marks that are newer than the tables are no marks to Hugging Face's tokenizers: nothing moves past them.
bool is_newer_mark(char32_t code) {
  return normalization_begins_anew(code) && utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

}  // namespace

bool normalization_begins_anew(char32_t code) {
  return code < 0x300 || !CharacterTable::instance().changed_by_normalization(code);
}

std::string_view normalized(std::string_view text, std::string& changed) {
  std::size_t change = next_change(text, 0);
  if (change == text.size()) return text;
  changed.clear();
  std::vector<utf8proc_int32_t> codes;
  std::size_t done = 0;
  for (; change < text.size(); change = next_change(text, done)) {
    std::size_t begin = change;
    if (change > done) {
      const std::size_t before = begin_of_character_before(text, change);
      if (!is_newer_mark(character_at(text, before).code)) begin = before;
    }
    changed.append(text.substr(done, begin - done));
    done = end_of_changes(text, change);
    append_nfc(text.substr(begin, done - begin), codes, changed);
  }
  return changed.append(text.substr(done));
}

}  // namespace strata::tokenizer
