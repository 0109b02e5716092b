#pragma once
#include <strata/checked_group.hpp>
#include <strata/state_store.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <type_traits>
#include <vector>

namespace strata::runtime {
class Session;
}

namespace strata::report {

// One rank's memory and traffic. Made of std::int64_t only: it travels as such numbers.
struct RankUsage {
  Ledger ledger;
  std::int64_t resident = 0;       // bytes, now
  std::int64_t peak_resident = 0;  // bytes
  std::int64_t processor = 0;      // microseconds of the process, all its threads, since the run began
  std::int64_t elapsed = 0;        // microseconds since then
  std::int64_t sent = 0;           // logical bytes this rank has sent since the run began, all groups
  std::array<std::int64_t, collective_count> sent_by_collective{};
  std::int64_t read = 0;     // bytes brought from other memory tiers since the run began
  std::int64_t written = 0;  // and sent there
};
static_assert(std::is_trivially_copyable_v<RankUsage> && std::has_unique_object_representations_v<RankUsage>);

// Measures this process from its making on: peaks of memory and processor time.
class UsageMeter {
 public:
  explicit UsageMeter(runtime::Session& session);
  // Of every rank, by rank. [collective] over the run
  std::vector<RankUsage> of_ranks() const;

 private:
  runtime::Session& session_;
  std::chrono::steady_clock::time_point begin_;
  std::clock_t processor_begin_;
};

}  // namespace strata::report
