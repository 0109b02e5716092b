// The resources of this host, or of this process's container, for ranks.
#pragma once
#include <cstdint>
#include <filesystem>

namespace strata::ranks {

struct HostResources {
  int cores = 1;                      // cores that this process may use
  std::int64_t memory_available = 0;  // bytes free on the host or within this process's cgroup limits; 0: unknown
  std::int64_t container_limit = 0;   // lowest cgroup limit in bytes; 0: none
  std::int64_t killed = 0;            // processes killed by the kernel at such a limit so far
};

// `root` stands for "/".
HostResources host_resources(const std::filesystem::path& root = "/");

// More ranks per core, or less memory per rank, is only useful for experiments.
inline constexpr int most_ranks_a_core = 16;
// A rank has 68 MiB of its own besides the model state (Private_Dirty, pythia layers of width 32).
inline constexpr std::int64_t least_rank_bytes = std::int64_t{64} << 20;

// Throws UserError with the numbers if `ranks` is far beyond the host's resources, unless `oversubscribe`.
void check_ranks(int ranks, bool oversubscribe, const HostResources& host);

// Raises the limit of open files to what the launcher and `ranks` ranks need. Throws EnvironmentError if the hard limit
// is too low.
void allow_open_files(int ranks);

}  // namespace strata::ranks
