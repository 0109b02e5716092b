#include "data/token_type.hpp"

namespace strata::data {

TokenType parse_token_type(const std::string& text) {
  if (text == "u16") return TokenType::U16;
  if (text == "u32") return TokenType::U32;
  throw UserError("'" + text + "' is not a type of tokens; it is u16 (ids below 65536) or u32");
}

TokenType token_type_of(const std::string& path) {
  return path.ends_with(".u32") || path.ends_with(".u32.bin") ? TokenType::U32 : TokenType::U16;
}

const char* to_string(TokenType type) {
  switch (type) {
    case TokenType::U8:
      return "u8";
    case TokenType::I8:
      return "i8";
    case TokenType::U16:
      return "u16";
    case TokenType::I16:
      return "i16";
    case TokenType::U32:
      return "u32";
    case TokenType::I32:
      return "i32";
    case TokenType::I64:
      return "i64";
  }
  throw Bug("to_string: no such token type");
}

std::size_t bytes_of(TokenType type) {
  return with_token_type(type, [](auto example) { return sizeof example; });
}

}  // namespace strata::data
