// Bytes that arrive a few at a time, shown as whole characters.
#pragma once
#include <string>
#include <string_view>

namespace strata::sample {

class CharacterStream {
 public:
  // The characters that are complete now. U+FFFD stands for bytes that are no UTF-8, as in valid_utf8(). A character
  // whose end is missing waits.
  std::string add(std::string_view bytes);
  // What still waits when no more comes: U+FFFD, or nothing.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace strata::sample
