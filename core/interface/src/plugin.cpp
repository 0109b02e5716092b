#include <strata/fingerprint.hpp>
#include <strata/options_in_file.hpp>
#include <strata/plugin.hpp>
#include <strata/state_stream.hpp>

namespace strata {

Plugin::~Plugin() = default;
OptionsInFile::~OptionsInFile() = default;
void Plugin::run_begins(RunContext& /*run*/) {}
void Plugin::shutdown() {}
void Plugin::save(StateWriter& /*writer*/) const {}
void Plugin::load(StateReader& /*reader*/, int /*version*/) {}
int Plugin::state_version() const {
  return 1;
}

StateWriter::~StateWriter() = default;
StateReader::~StateReader() = default;

Fingerprint host_fingerprint() {
  return {STRATA_FINGERPRINT_LIBTORCH, STRATA_FINGERPRINT_STANDARD_LIBRARY, STRATA_FINGERPRINT_CXX11_ABI,
          STRATA_FINGERPRINT_SANITIZER, STRATA_FINGERPRINT_COMPILER};
}

}  // namespace strata
