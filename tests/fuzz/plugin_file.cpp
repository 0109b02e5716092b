#include "fuzz.hpp"
#include "in_memory.hpp"
#include "plugins/elf_section.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  const FileInMemory file(text);
  try {
    plugin_host::read_elf_section(file.path(), ".strata");
  } catch (const plugin_host::DamagedFile&) {
  }
}
