#include "runner/process_facts.hpp"

#include <malloc.h>

#include <filesystem>
#include <fstream>

namespace strata::conformance {

namespace {

int entries_of(const char* folder) {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

}  // namespace

int threads_of_this_process() {
  return entries_of("/proc/self/task");
}

int open_files_of_this_process() {
  return entries_of("/proc/self/fd") - 1;  // that of the folder itself
}

std::optional<std::int64_t> allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  if (info.arena + info.hblkhd == 0) return std::nullopt;
  return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

bool is_mapped_here(const std::string& file) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.ends_with(" " + file)) return true;
  return false;
}

}  // namespace strata::conformance
