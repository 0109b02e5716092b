#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/file.hpp"

namespace strata::data {

struct PackOptions {
  int token_bytes = 2;  // or 4: tokens are u16 or u32
  Existing existing = Existing::Refuse;
  std::string jsonl_key = "text";
  // The token written behind each document, so that a model sees where one ends. A line of a .jsonl file is a document,
  // and so is any other file. 0 is no byte of text, and the end of text of GPT-NeoX's tokenizer.
  std::optional<std::uint32_t> line_end = 0;
  std::optional<std::uint32_t> file_end;
};

struct PackResult {
  std::int64_t files = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;  // files in folders that were left out, see below
};

// Writes the bytes of text files as tokens (ids 0 to 255), back to back, into a token file that appears whole or not at
// all. Inputs are taken in the order given; a folder stands for the files under it, ordered by their path's bytes,
// without names that start with a dot, without symbolic links, without files that hold a zero byte in their first 8 KiB
// (no text) and without the output itself. A file named as an input is packed whatever it holds. The same content gives
// the same file on every machine.
//
// Of a file NAME.jsonl each line is a JSON object, and the string under the key `jsonl_key` is packed, in UTF-8; empty
// lines are nothing. A compressed one (.jsonl.gz, .jsonl.zst, ...) is refused.
//
// `progress(bytes read so far, bytes in all)` is called now and then. Blocks. Throws UserError for inputs that do not
// exist, hold nothing or, with file and line, are no such JSON; EnvironmentError for a full disk. Then nothing is left
// behind.
PackResult pack_text(const std::vector<std::string>& inputs, const std::string& output, const PackOptions& options,
                     const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace strata::data
