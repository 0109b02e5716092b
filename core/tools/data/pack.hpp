#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/file.hpp"
#include "tools/data/text_files.hpp"
#include "tools/tokenizer/tokenizer.hpp"

namespace strata::cli {

struct PackOptions {
  int token_bytes = 2;  // or 4: tokens are u16 or u32
  data::Existing existing = data::Existing::Refuse;
  Reading reading = Reading::ByName;
  std::string jsonl_key = "text";
  // Token written after each document, which marks its end. Each JSON line is a document; any other file is one
  // document. 0 does not occur in text and is the end-of-text token of GPT-NeoX's tokenizer.
  std::optional<std::uint32_t> line_end = 0;
  std::optional<std::uint32_t> file_end;
  const tokenizer::Tokenizer* tokenizer = nullptr;  // null: bytes are tokens
  int threads = 1;                                  // threads of the tokenizer; the result does not depend on it
};

struct PackResult {
  std::int64_t files = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;   // files in folders that were skipped, see below
  std::int64_t left_out = 0;  // bytes without a token
};

// Writes text files as tokens into a token file, which is created completely or not at all: their bytes (ids 0 to 255),
// or what the tokenizer makes of each document.
// Inputs are packed in the order given. A folder stands for the files under it, sorted by path, except names that start
// with a dot, symbolic links, files with a zero byte in their first 8 KiB or of another known format (not text) and the
// output itself. The same content gives the same file on every machine.
//
// Each line of a file of JSON lines (see Reading) is an object, of which the string under `jsonl_key` is packed in
// UTF-8; empty lines are skipped. Refused, unless files are packed as they are: a file given as an input that is
// compressed or of another known format, or text in UTF-16; and a file with lines of objects whose name is not .jsonl.
//
// A file of any size is packed by parts: the tokenizer says where a cut changes no token. A file without such a place,
// e.g. of one endless word, is held in memory whole, and such a word takes up to 40 times its size.
//
// `progress(bytes read, bytes in total)` is called from time to time. Blocks. Throws UserError for inputs that do not
// exist, are empty or, with file and line, are not such JSON, and for tokens that the width does not hold;
// EnvironmentError for a full disk. After an error no file is left.
PackResult pack_text(const std::vector<std::string>& inputs, const std::string& output, const PackOptions& options,
                     const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace strata::cli
