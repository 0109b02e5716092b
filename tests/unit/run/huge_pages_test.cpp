// Large tensors in host memory lie in memory for which huge pages are asked.
#include <ATen/ops/empty.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "catch.hpp"

namespace {

// The flags of the mapping that `address` is in, from /proc/self/smaps.
std::string flags_at(std::uintptr_t address) {
  std::ifstream mappings("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(mappings, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-')
      here = begin <= address && address < end;
    else if (here && line.starts_with("VmFlags:"))
      return line + " ";
  }
  return {};
}

}  // namespace

TEST_CASE("libtorch asks for huge pages under a large tensor where the kernel has them") {
  const at::Tensor large = at::empty({std::int64_t{16} << 20}, at::kByte);
  const auto middle = reinterpret_cast<std::uintptr_t>(large.const_data_ptr()) + large.nbytes() / 2;
  const bool asked = flags_at(middle).find(" hg ") != std::string::npos;
  CHECK(asked == std::filesystem::exists("/sys/kernel/mm/transparent_hugepage"));
}
