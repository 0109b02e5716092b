#include "plugins/elf_section.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

namespace strata::plugins {
namespace {

#if defined(__x86_64__)
constexpr Elf64_Half host_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half host_machine = EM_AARCH64;
#else
#error "Plugins are read on x86_64 and aarch64 only: add this machine's ELF number"
#endif

constexpr std::size_t longest_section = std::size_t{1} << 20;

std::string system_reason() {
  return std::strerror(errno);
}

std::uint64_t size_of(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw DamagedFile("cannot be read: " + system_reason());
  if (S_ISDIR(status.st_mode)) throw DamagedFile("is a folder, not a shared library");
  if (!S_ISREG(status.st_mode)) throw DamagedFile("is not a regular file");
  return static_cast<std::uint64_t>(status.st_size);
}

// Fills `target` from `offset`. A file that has become shorter meanwhile counts as truncated.
void read_at(int descriptor, std::uint64_t file_size, std::uint64_t offset, void* target, std::size_t bytes,
             const char* what) {
  if (offset > file_size || bytes > file_size - offset) {
    throw DamagedFile(std::string("is truncated: its ") + what + " ends at byte " + std::to_string(offset) + " + " +
                      std::to_string(bytes) + ", but the file ends at byte " + std::to_string(file_size));
  }
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(descriptor, static_cast<char*>(target) + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw DamagedFile("cannot be read: " + system_reason());
    if (got == 0) throw DamagedFile(std::string("is truncated: its ") + what + " is incomplete");
    done += static_cast<std::size_t>(got);
  }
}

Elf64_Ehdr read_header(int descriptor, std::uint64_t file_size) {
  Elf64_Ehdr header{};
  if (file_size == 0) throw DamagedFile("is empty");
  if (file_size >= SELFMAG) read_at(descriptor, file_size, 0, header.e_ident, SELFMAG, "magic number");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) throw DamagedFile("is not an ELF shared library");
  read_at(descriptor, file_size, 0, &header, sizeof header, "ELF header");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
    throw DamagedFile("is not a 64-bit little-endian ELF library");
  }
  if (header.e_type != ET_DYN) throw DamagedFile("is an ELF file, but not a shared library");
  if (header.e_machine != host_machine) {
    throw DamagedFile("was built for ELF machine " + std::to_string(header.e_machine) + ", this host is machine " +
                      std::to_string(host_machine));
  }
  return header;
}

}  // namespace

std::string read_elf_section(const std::string& path, const std::string& section) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw DamagedFile("cannot be opened: " + system_reason());
  struct Closer {
    int descriptor;
    ~Closer() { ::close(descriptor); }
  } closer{descriptor};
  const std::uint64_t file_size = size_of(descriptor);
  const Elf64_Ehdr header = read_header(descriptor, file_size);
  if (header.e_shoff == 0 || header.e_shnum == 0) throw DamagedFile("has no section table (it was stripped)");
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
    throw DamagedFile("has a damaged section table");
  }
  std::vector<Elf64_Shdr> table(header.e_shnum);
  read_at(descriptor, file_size, header.e_shoff, table.data(), table.size() * sizeof(Elf64_Shdr), "section table");

  // Names are compared within the table of names; one that exceeds it does not match.
  const Elf64_Shdr& names = table[header.e_shstrndx];
  if (names.sh_size > longest_section) throw DamagedFile("has a damaged section table");
  std::string name_bytes(names.sh_size, '\0');
  read_at(descriptor, file_size, names.sh_offset, name_bytes.data(), name_bytes.size(), "table of section names");
  for (const Elf64_Shdr& entry : table) {
    if (entry.sh_name >= name_bytes.size() || entry.sh_type == SHT_NOBITS) continue;
    if (name_bytes.compare(entry.sh_name, section.size() + 1, section.c_str(), section.size() + 1) != 0) continue;
    if (entry.sh_size > longest_section)
      throw DamagedFile("has a section " + section + " of " + std::to_string(entry.sh_size) + " bytes");
    std::string text(entry.sh_size, '\0');
    read_at(descriptor, file_size, entry.sh_offset, text.data(), text.size(), section.c_str());
    const std::size_t end = text.find('\0');
    if (end == std::string::npos) throw DamagedFile("has a section " + section + " that does not end with a zero byte");
    text.resize(end);
    return text;
  }
  throw DamagedFile("is not a Strata plugin (it has no section " + section + ")");
}

}  // namespace strata::plugins
