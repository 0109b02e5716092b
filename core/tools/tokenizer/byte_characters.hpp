#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace strata::tokenizer {

// Byte-level tokenizers write each byte as a character that can be printed: those of Latin 1 as themselves, the others
// as U+0100 and on, in their order.
char32_t character_of_byte(unsigned char byte);

// The bytes that a token of tokenizer.json stands for; none when one of its characters stands for no byte.
std::optional<std::string> bytes_of_token(std::string_view token);

}  // namespace strata::tokenizer
