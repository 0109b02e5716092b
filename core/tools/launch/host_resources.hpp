// What this host, or the container that this process is in, has for ranks.
#pragma once
#include <cstdint>
#include <filesystem>

namespace strata::launch {

struct HostResources {
  int cores = 1;  // that this process may run on
  std::int64_t memory_available =
      0;  // bytes: of the host, or what is left of the limits of this process's cgroups; 0: unknown
  std::int64_t container_limit = 0;  // the lowest of those limits, in bytes; 0: none
  std::int64_t killed = 0;           // processes that the kernel has killed at such a limit so far
};

// `root` stands for "/".
HostResources host_resources(const std::filesystem::path& root = "/");

// More ranks than this on a core, or less memory than this for each, serve no purpose but to try something out.
inline constexpr int most_ranks_a_core = 16;
// 68 MiB are a rank's own beside its model's state (Private_Dirty of pythia's layers at a width of 32).
inline constexpr std::int64_t least_rank_bytes = std::int64_t{64} << 20;

// Throws UserError, with the numbers, when `ranks` of them are far beyond what the host has, and `oversubscribe` was
// not given.
void check_ranks(int ranks, bool oversubscribe, const HostResources& host);

// Lets this process, and those it starts, have as many files open as its launcher and `ranks` ranks need. Throws
// EnvironmentError when the hard limit forbids it.
void allow_open_files(int ranks);

}  // namespace strata::launch
