#include "run/process_memory.hpp"

#include <malloc.h>

#include <fstream>
#include <string>

namespace strata::report {

namespace {
std::int64_t status_field(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != field) continue;
    std::int64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}
}  // namespace

std::int64_t resident_bytes() {
  return status_field("VmRSS:");
}
std::int64_t peak_resident_bytes() {
  return status_field("VmHWM:");
}

void reset_peak_resident() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace strata::report
