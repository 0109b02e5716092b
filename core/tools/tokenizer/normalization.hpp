#pragma once
#include <string>
#include <string_view>

namespace strata::tokenizer {

// Unicode's form NFC of valid UTF-8, for the characters that Hugging Face's tokenizers knows (unicode_ranges.hpp):
// `text` itself where nothing changes, else a copy in `changed`.
std::string_view normalized(std::string_view text, std::string& changed);

// Whether NFC of a text is NFC of what stands before this character and NFC of the rest, put together.
bool normalization_begins_anew(char32_t code);

}  // namespace strata::tokenizer
