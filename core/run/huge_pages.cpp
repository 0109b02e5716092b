// libtorch asks for huge pages under a large tensor in host memory where THP_MEM_ALLOC_ENABLE is set when the process
// allocates its first tensor; that is the case from the load of this library on. A page fault then brings 2 MiB and not
// 4 KiB, and the processor finds the addresses of 512 times the memory without a walk of the page tables. A value that
// the user has set stays: THP_MEM_ALLOC_ENABLE=0 turns it off.
#include <cstdlib>
#include <filesystem>

namespace {

[[gnu::constructor]] void ask_for_huge_pages() {
  std::error_code none;  // a kernel without them: libtorch would warn of it
  if (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage", none)) setenv("THP_MEM_ALLOC_ENABLE", "1", 0);
}

}  // namespace
