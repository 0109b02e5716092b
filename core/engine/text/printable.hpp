// What a terminal obeys is never printed as it came: names of files, keys and values of files, texts of other
// processes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace strata::text {

// `text` with control characters as \u001b and bytes that are no UTF-8 as \x9b. Control characters are U+0000 to U+001F
// but line breaks and tabs, U+007F, and U+0080 to U+009F. JSON, YAML and TOML in quotes read \u001b as it was.
std::string printable(std::string_view text);

// printable() in one line, line breaks and tabs escaped too, of at most `longest` bytes of whole characters of `text`.
std::string one_line(std::string_view text, std::size_t longest = 200);

// Takes text in pieces; characters may be cut between two of them.
class Printable {
 public:
  // The printable part of all that was added and is whole; the first bytes of a character wait for the rest.
  std::string add(std::string_view piece);
  // What waits, as bytes.
  std::string finish();

 private:
  std::string rest_;
};

}  // namespace strata::text
