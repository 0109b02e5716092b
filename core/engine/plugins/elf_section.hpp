#pragma once
#include <stdexcept>
#include <string>

namespace strata::plugins {

// Error of a file that is not a usable plugin. The text does not name the file; the caller adds the path.
class DamagedFile : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the contents of a section of a shared library, up to its first zero byte. Nothing is loaded or mapped, and
// every offset is checked against the file's size, so any file gives a text or DamagedFile. Refuses sections longer
// than 1 MiB, and files that cannot be opened or are not regular; does not block on a pipe.
std::string read_elf_section(const std::string& path, const std::string& section);

}  // namespace strata::plugins
