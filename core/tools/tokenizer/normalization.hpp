#pragma once
#include <string>
#include <string_view>

namespace strata::tokenizer {

// Returns NFC of valid UTF-8, for the characters covered by Hugging Face's tokenizers (unicode_ranges.hpp): `text`
// itself if nothing changes, otherwise a copy in `changed`.
std::string_view normalized(std::string_view text, std::string& changed);

// True if NFC of a text is NFC of the part before this character followed by NFC of the rest.
bool normalization_begins_anew(char32_t code);

}  // namespace strata::tokenizer
