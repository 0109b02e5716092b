#pragma once
#include <elf.h>

#include <cstring>
#include <string>
#include <vector>

#include "conformance/runner/case.hpp"

namespace strata::conformance {

// A shared library as the dynamic linker sees it, read from its file. Any content gives a result or a Failure.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  // Returns the symbols to which others can bind.
  std::vector<std::string> exported() const;
  // Returns the DT_NEEDED entries, in order.
  std::vector<std::string> needed() const;

 private:
  template <class Record>
  Record at(std::uint64_t offset) const {
    require(offset <= bytes_.size() && sizeof(Record) <= bytes_.size() - offset,
            "its ELF structure points past the end of the file");
    Record record;
    std::memcpy(&record, bytes_.data() + offset, sizeof record);
    return record;
  }
  std::string text_at(const Elf64_Shdr& strings, std::uint64_t offset) const;
  std::vector<Elf64_Shdr> sections_of(std::uint32_t type) const;
  const Elf64_Shdr& section(std::uint32_t index) const;

  std::string bytes_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace strata::conformance
