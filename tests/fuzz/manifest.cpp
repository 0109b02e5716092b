#include "plugins/manifest.hpp"

#include "fuzz.hpp"
#include "plugins/elf_section.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  plugins::Manifest manifest;
  try {
    plugins::parse_manifest(text, manifest);
  } catch (const plugins::DamagedFile&) {
  }
}
