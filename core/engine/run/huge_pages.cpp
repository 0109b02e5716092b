// Asks libtorch for huge pages under large tensors in host memory: a page fault then brings 2 MiB instead of 4 KiB, and
// one entry of the processor's address cache covers 512 times the memory. libtorch reads the variable when the process
// allocates its first tensor, so it is set when this library is loaded. A value of the user's stays; 0 turns it off.
#include <cstdlib>
#include <filesystem>

namespace {

[[gnu::constructor]] void ask_for_huge_pages() {
  // Not on a kernel without them, where libtorch would print a warning.
  std::error_code none;
  if (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage", none)) setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
}

}  // namespace
