#include "conformance/general/elf_file.hpp"

#include <fstream>
#include <iterator>

namespace strata::conformance {

ElfFile::ElfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), "it cannot be opened");
  bytes_.assign(std::istreambuf_iterator<char>(file), {});
  const auto header = at<Elf64_Ehdr>(0);
  for (std::uint64_t i = 0; i < header.e_shnum; ++i)
    sections_.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
}

const Elf64_Shdr& ElfFile::section(std::uint32_t index) const {
  require(index < sections_.size(), "its ELF structure names a missing section");
  return sections_[index];
}

std::vector<Elf64_Shdr> ElfFile::sections_of(std::uint32_t type) const {
  std::vector<Elf64_Shdr> found;
  for (const Elf64_Shdr& one : sections_)
    if (one.sh_type == type) found.push_back(one);
  return found;
}

std::string ElfFile::text_at(const Elf64_Shdr& strings, std::uint64_t offset) const {
  const std::uint64_t begin = strings.sh_offset + offset;
  const std::size_t end = begin < bytes_.size() ? bytes_.find('\0', begin) : std::string::npos;
  require(end != std::string::npos, "its ELF structure points past the end of the file");
  return bytes_.substr(begin, end - begin);
}

std::vector<std::string> ElfFile::exported() const {
  std::vector<std::string> names;
  for (const Elf64_Shdr& table : sections_of(SHT_DYNSYM)) {
    for (std::uint64_t offset = 0; offset + sizeof(Elf64_Sym) <= table.sh_size; offset += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(table.sh_offset + offset);
      const unsigned visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      const bool is_seen =
          ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
      if (is_seen && symbol.st_shndx != SHN_UNDEF) names.push_back(text_at(section(table.sh_link), symbol.st_name));
    }
  }
  return names;
}

std::vector<std::string> ElfFile::needed() const {
  std::vector<std::string> names;
  for (const Elf64_Shdr& table : sections_of(SHT_DYNAMIC)) {
    for (std::uint64_t offset = 0; offset + sizeof(Elf64_Dyn) <= table.sh_size; offset += sizeof(Elf64_Dyn)) {
      const auto entry = at<Elf64_Dyn>(table.sh_offset + offset);
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED) names.push_back(text_at(section(table.sh_link), entry.d_un.d_val));
    }
  }
  return names;
}

}  // namespace strata::conformance
