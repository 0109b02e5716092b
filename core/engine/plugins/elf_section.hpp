#pragma once
#include <stdexcept>
#include <string>

namespace strata::plugin_host {

// The reason why a file is not a usable plugin. The text does not name the file; the caller adds the path.
class DamagedFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The contents of the named section of a shared library, up to its first zero byte. Nothing is loaded or mapped, and
// every offset is checked against the file's size, so any file gives a text or DamagedFile. Sections longer than 1 MiB
// are refused, and whatever cannot be opened or is not a regular file; does not block on a pipe.
std::string read_elf_section(const std::string& path, const std::string& section);

}  // namespace strata::plugin_host
