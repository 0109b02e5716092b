#include "fuzz.hpp"
#include "in_memory.hpp"
#include "tools/schedule/trace_file.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  const FileInMemory file(text);
  read_or_refuse([&] { schedule::read_trace(file.path()); });
}
