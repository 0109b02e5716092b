// Escapes control sequences of terminals in foreign texts: names of files, keys and values of files, texts of other
// processes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace strata::text {

// Returns `text` with control characters as \u001b and bytes that are not UTF-8 as \x9b. Control characters are U+0000
// to U+001F except line breaks and tabs, U+007F, and U+0080 to U+009F. JSON, YAML and TOML in quotes read \u001b back.
std::string printable(std::string_view text);

// Returns printable() in one line, with line breaks and tabs escaped, of at most `longest` bytes of whole characters.
std::string one_line(std::string_view text, std::size_t longest = 200);

// Filter for text in pieces; characters may be cut between two pieces.
class Printable {
 public:
  // Adds a piece and returns printable text of whole characters; the first bytes of a character wait for the rest.
  std::string add(std::string_view piece);
  // Returns the waiting bytes, escaped.
  std::string finish();

 private:
  std::string rest_;
};

}  // namespace strata::text
