#pragma once
#include <strata/input_file.hpp>

#include <cstdint>

namespace strata::toolbox {

// Header of llm.c's token files: 256 integers of 4 bytes, then the ids. u16 ids (GPT-2's) follow 20240520, 1, the
// number of ids, 0, ...; u32 ids (Llama 3's) follow 20240801, 7, the number of ids, 0, ... Plugins for files without a
// header check for this one, so that a header is not read as ids.
struct LlmCHeader {
  static constexpr std::uint64_t bytes = 1024;
  static constexpr std::uint32_t u16_magic = 20240520, u32_magic = 20240801;

  std::uint32_t magic = 0, version = 0, count = 0;  // zeros if the file is shorter

  explicit LlmCHeader(const InputFile& file) {
    if (file.size() >= sizeof *this) file.read_at(0, this, sizeof *this);
  }
  bool is_of_tokens() const { return magic == u16_magic || magic == u32_magic; }
  // Returns the bytes of the whole file.
  std::uint64_t file_bytes() const { return bytes + std::uint64_t{count} * (magic == u16_magic ? 2 : 4); }
};

}  // namespace strata::toolbox
