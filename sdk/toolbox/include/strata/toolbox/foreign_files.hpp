// Recognizes files of other formats by their content, for readers of files that do not identify themselves: token ids
// without a header, and text.
#pragma once
#include <strata/input_file.hpp>

#include <optional>
#include <string>

namespace strata::toolbox {

struct ForeignFile {
  std::string what;    // "is compressed by gzip"
  std::string remedy;  // "unpack it first"
};

// Returns the format identified by a file's first bytes, at least four, so that token ids and text are hardly ever
// mistaken for one; empty for text and unknown content.
std::optional<ForeignFile> foreign_file(const InputFile& file);
// Throws UserError "PATH: ..." for a file of a format that foreign_file() identifies.
void refuse_foreign_file(const InputFile& file);

// True if the file begins with 12 bytes or more of text: UTF-8 without control characters, UTF-16 with its
// mark, or 128 bytes that are mostly ASCII, as in Latin-1.
bool is_text(const InputFile& file);
// Returns the encoding of the byte order mark of a text that is not UTF-8: "UTF-16" or "UTF-32"; empty without one.
std::string other_encoding(const InputFile& file);

}  // namespace strata::toolbox
