// Memory, traffic and processor time of ranks.
#pragma once
#include <strata/checked_group.hpp>
#include <strata/state_store.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <type_traits>
#include <vector>

namespace strata::step {
class Session;
}

namespace strata::report {

// Usage of one rank, from std::int64_t only: collectives send such numbers.
struct RankUsage {
  Ledger ledger;
  std::int64_t resident = 0;       // bytes
  std::int64_t peak_resident = 0;  // bytes
  std::int64_t processor = 0;      // microseconds of all threads of the process since the run began
  std::int64_t elapsed = 0;        // microseconds since the run began
  std::int64_t sent = 0;           // logical bytes sent in all groups since the run began
  std::array<std::int64_t, collective_count> sent_by_collective{};
  std::int64_t read = 0;     // bytes read from other memory tiers since the run began
  std::int64_t written = 0;  // bytes written to other memory tiers since the run began
};
static_assert(std::is_trivially_copyable_v<RankUsage> && std::has_unique_object_representations_v<RankUsage>);

// Measures peak memory and processor time of this process from its construction on.
class UsageMeter {
 public:
  explicit UsageMeter(step::Session& session);
  // Returns the usage of each rank, by rank. [collective] over the run
  std::vector<RankUsage> of_ranks() const;

 private:
  step::Session& session_;
  std::chrono::steady_clock::time_point begin_;
  std::clock_t processor_begin_;
};

}  // namespace strata::report
