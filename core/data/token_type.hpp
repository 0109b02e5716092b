#pragma once
#include <strata/error.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata::data {

// How one token id lies in a file. Ids are never negative; the signed types are there because files have them.
enum class TokenType { U8, I8, U16, I16, U32, I32, I64 };

// "u16" or "u32", the types of files that do not say it themselves; throws UserError otherwise.
TokenType parse_token_type(const std::string& text);
// What the name of such a file says: NAME.u32 and NAME.u32.bin are u32, every other name is u16 (nanoGPT's own).
TokenType token_type_of(const std::string& path);
const char* to_string(TokenType type);
std::size_t bytes_of(TokenType type);

// Calls call(Integer{}) with the C++ type of `type`.
template <typename Call>
decltype(auto) with_token_type(TokenType type, Call call) {
  switch (type) {
    case TokenType::U8:
      return call(std::uint8_t{});
    case TokenType::I8:
      return call(std::int8_t{});
    case TokenType::U16:
      return call(std::uint16_t{});
    case TokenType::I16:
      return call(std::int16_t{});
    case TokenType::U32:
      return call(std::uint32_t{});
    case TokenType::I32:
      return call(std::int32_t{});
    case TokenType::I64:
      return call(std::int64_t{});
  }
  throw Bug("with_token_type: no such type");
}

}  // namespace strata::data
