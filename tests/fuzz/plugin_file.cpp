#include "fuzz.hpp"
#include "in_memory.hpp"
#include "plugins/elf_section.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  const FileInMemory file(text);
  try {
    plugins::read_elf_section(file.path(), ".strata");
  } catch (const plugins::DamagedFile&) {
  }
}
