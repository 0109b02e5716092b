#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/file.hpp"
#include "tools/data/text_files.hpp"
#include "tools/tokenizer/tokenizer.hpp"

namespace strata::cli {

// Unit of work of one thread: lines of JSON, or a part of a document.
struct TextPart {
  std::string path;
  std::string text;
  bool lines = false;
  std::int64_t first_line = 1;  // number of the first line
  bool begins = false;          // true: the part begins a document; without lines
  bool ends = false;
  std::int64_t read = 0;  // bytes of all files up to the end of this part
};

// Reads text files in parts of about a megabyte whose tokens together equal those of the whole text.
class TextParts {
 public:
  TextParts(const TextFiles& files, const tokenizer::Tokenizer& tokenizer);
  std::optional<TextPart> next();

 private:
  bool open_next();
  // Returns the end of the part in rest_, whose bytes before `searched` contain none; 0: there is none.
  std::size_t end_of_part(std::size_t searched) const;

  const TextFiles& files_;
  const tokenizer::Tokenizer& tokenizer_;
  std::size_t opened_ = 0;
  std::optional<InputFile> file_;
  bool lines_ = false;
  std::uint64_t position_ = 0;  // bytes read of the file
  std::string rest_;            // bytes read and not yet returned
  std::int64_t line_ = 1;
  bool begins_ = true;
  std::int64_t read_ = 0;
};

}  // namespace strata::cli
