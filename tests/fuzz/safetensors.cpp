#include "checkpoint/safetensors.hpp"

#include "fuzz.hpp"
#include "in_memory.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  const std::uint64_t length = text.size();
  const FileInMemory file(std::string(reinterpret_cast<const char*>(&length), sizeof length) + text +
                          std::string(8, '\0'));
  read_or_refuse([&] { checkpoint::SafetensorsFile read(file.path()); });
}
