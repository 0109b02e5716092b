// By the kernel's own calls: libraries for this bring others along that a machine may lack.
#include "numa_node.hpp"

#include <strata/format.hpp>

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace strata::offload_cpu {
namespace {

// "0-3,8-11"
std::vector<int> numbers_in(std::istream& list) {
  std::vector<int> numbers;
  for (std::string range; std::getline(list, range, ',');) {
    std::istringstream text(range);
    int first = 0, last = 0;
    char dash = 0;
    if (!(text >> first)) continue;
    if (!(text >> dash >> last)) last = first;
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

bool may_run_on(const std::vector<cpu_set_t>& allowed, int processor) {
  return CPU_ISSET_S(static_cast<std::size_t>(processor), allowed.size() * sizeof(cpu_set_t), allowed.data());
}

}  // namespace

std::optional<int> own_node(const std::string& root) {
  std::vector<cpu_set_t> allowed(8);  // 8192 processors
  if (sched_getaffinity(0, allowed.size() * sizeof(cpu_set_t), allowed.data()) != 0) return std::nullopt;
  std::error_code none;
  std::vector<int> own;
  int nodes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/devices/system/node", none)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("node")) continue;
    ++nodes;
    std::ifstream list(entry.path() / "cpulist");
    const std::vector<int> processors = numbers_in(list);
    if (std::ranges::any_of(processors, [&](int one) { return may_run_on(allowed, one); }))
      own.push_back(std::stoi(name.substr(4)));
  }
  return nodes > 1 && own.size() == 1 ? std::optional(own.front()) : std::nullopt;
}

std::string prefer_node(void* memory, std::size_t bytes, int node) {
  constexpr std::size_t bits = 8 * sizeof(unsigned long);
  const auto bit = static_cast<std::size_t>(node);
  std::vector<unsigned long> nodes(bit / bits + 1, 0);
  nodes.back() = 1UL << bit % bits;
  // The kernel reads one bit less than the given number.
  if (syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes.data(), nodes.size() * bits + 1, 0) == 0) return "";
  return format("mbind: {} (errno {})", std::strerror(errno), errno);
}

}  // namespace strata::offload_cpu
