#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace strata::tokenizer {

// Byte-level tokenizers write each byte as a printable character: printable Latin-1 characters as themselves, the
// others as U+0100 and up, in their order.
char32_t character_of_byte(unsigned char byte);

// Returns the bytes of a token of tokenizer.json; empty if one of its characters represents no byte.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace strata::tokenizer
