#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "data/file.hpp"
#include "tools/data/text_files.hpp"
#include "tools/tokenizer/tokenizer.hpp"

namespace strata::cli {

// What one thread works on at a time: lines of JSON, or a part of a document.
struct TextPart {
  std::string path;
  std::string text;
  bool lines = false;
  std::int64_t first_line = 1;  // the number of the first of the lines
  bool begins = false;          // a document, where there are no lines
  bool ends = false;
  std::int64_t read = 0;  // bytes of all files up to this part's end
};

// Reads text files in parts of about a megabyte, which the tokenizer encodes as it would encode the whole.
class TextParts {
 public:
  TextParts(const TextFiles& files, const tokenizer::Tokenizer& tokenizer);
  std::optional<TextPart> next();

 private:
  bool open_next();
  // Where the part ends in rest_, of which the bytes before `searched` hold no end; 0 where there is none.
  std::size_t end_of_part(std::size_t searched) const;

  const TextFiles& files_;
  const tokenizer::Tokenizer& tokenizer_;
  std::size_t opened_ = 0;
  std::optional<InputFile> file_;
  bool lines_ = false;
  std::uint64_t position_ = 0;  // in the file: what was read of it
  std::string rest_;            // what was read and not given out
  std::int64_t line_ = 1;
  bool begins_ = true;
  std::int64_t read_ = 0;
};

}  // namespace strata::cli
