#include "plugins/manifest.hpp"

#include "fuzz.hpp"
#include "plugins/elf_section.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  plugin_host::Manifest manifest;
  try {
    plugin_host::parse_manifest(text, manifest);
  } catch (const plugin_host::DamagedFile&) {
  }
}
