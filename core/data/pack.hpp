// defines: PackResult, pack_text
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/file.hpp"
#include "data/token_file.hpp"

namespace strata::data {

struct PackResult {
  std::int64_t files = 0;
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;  // files in folders that were left out, see below
};

// Writes the bytes of text files as tokens (ids 0 to 255), back to back, into a token file that appears whole or not at
// all. Inputs are taken in the order given; a folder stands for the files under it, ordered by their path's bytes,
// without names that start with a dot, without symbolic links, without files that hold a zero byte in their first 8 KiB
// (no text) and without the output itself. A file named as an input is packed whatever it holds. The same content gives
// the same file on every machine. `progress(bytes so far, bytes in all)` is called now and then. Blocks. Throws
// UserError for inputs that do not exist or hold nothing, EnvironmentError for a full disk; then nothing is left
// behind.
PackResult pack_text(const std::vector<std::string>& inputs, const std::string& output, TokenWidth width,
                     Existing existing, const std::function<void(std::int64_t, std::int64_t)>& progress = {});

}  // namespace strata::data
