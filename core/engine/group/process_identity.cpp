#include "group/process_identity.hpp"

#include <strata/format.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>

namespace strata::group {

namespace {

struct Stat {
  char state = 0;
  std::uint64_t start = 0;
};

// The kernel's record of a process; nothing if there is no process with this id.
std::optional<Stat> read_stat(std::int64_t number) {
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  std::istringstream fields(line.substr(line.rfind(')') + 1));  // a program's name may contain spaces and parentheses
  Stat stat;
  fields >> stat.state;
  constexpr int between = 18;  // the fields from ppid, the 4th, to itrealvalue, the 21st
  std::string skipped;
  for (int field = 0; field < between; ++field) fields >> skipped;
  fields >> stat.start;
  if (!fields) return std::nullopt;
  return stat;
}

std::string host_of_this_process() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat space {};
  if (boot.empty() || stat("/proc/self/ns/pid", &space) != 0) return "";
  return format("{} {}", boot, space.st_ino);
}

}  // namespace

ProcessIdentity own_identity() {
  ProcessIdentity identity{host_of_this_process(), getpid(), 0};
  if (const std::optional<Stat> stat = read_stat(identity.number)) identity.start = stat->start;
  return identity;
}

ProcessState state_of(const ProcessIdentity& process) {
  static const std::string here = host_of_this_process();
  if (here.empty() || process.host != here) return ProcessState::Unknown;
  const std::optional<Stat> stat = read_stat(process.number);
  if (!stat || stat->start != process.start) return ProcessState::Gone;
  switch (stat->state) {
    case 'T':
      return ProcessState::Stopped;
    case 't':
      return ProcessState::Traced;
    case 'Z':
    case 'X':
      return ProcessState::Gone;
    default:
      return ProcessState::Runs;
  }
}

}  // namespace strata::group
