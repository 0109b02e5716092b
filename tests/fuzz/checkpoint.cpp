#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "checkpoint/checksum.hpp"
#include "checkpoint/training_checkpoint.hpp"
#include "fuzz.hpp"

using namespace strata;

STRATA_FUZZ(text) {
  static const std::filesystem::path folder = [] {
    std::string name = (std::filesystem::temp_directory_path() / "strata-fuzz-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) __builtin_trap();
    return name;
  }();
  std::ofstream(folder / "checkpoint.json", std::ios::binary)
      << "{\"xxh3\": \"" << checkpoint::format_checksum(checkpoint::checksum_of(text)) << "\", \"checkpoint\":\n"
      << text;
  read_or_refuse([&] { checkpoint::TrainingCheckpoint::read(folder); });
}
