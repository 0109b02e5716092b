// Converts bytes that arrive in pieces to whole characters.
#pragma once
#include <string>
#include <string_view>

namespace strata::sample {

class CharacterStream {
 public:
  // Returns the characters that are complete. U+FFFD replaces bytes that are not UTF-8, as in valid_utf8(). An
  // incomplete character waits for its remaining bytes.
  std::string add(std::string_view bytes);
  // Returns U+FFFD for an incomplete character at the end of the stream, otherwise nothing.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace strata::sample
