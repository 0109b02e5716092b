#include "report/rank_usage.hpp"

#include <malloc.h>

#include <fstream>
#include <string>

#include "group/numbers.hpp"
#include "stage/seconds_since.hpp"
#include "step/session.hpp"

namespace strata::report {

namespace {

// Bytes, from the operating system: VmRSS of this process, or VmHWM, the highest since the start or the last
// reset.
std::int64_t status_field(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != field) continue;
    std::int64_t kibibytes = 0;
    status >> kibibytes;
    return kibibytes * 1024;
  }
  return 0;
}

}  // namespace

UsageMeter::UsageMeter(step::Session& session) : session_(session) {
  session.store().reset_peaks();
  // Gives freed heap pages back and lets VmHWM start again from now; nothing where the kernel does not allow it.
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5";
  begin_ = std::chrono::steady_clock::now();
  processor_begin_ = std::clock();
}

std::vector<RankUsage> UsageMeter::of_ranks() const {
  RankUsage mine;
  mine.ledger = session_.store().ledger();
  mine.resident = status_field("VmRSS:");
  mine.peak_resident = status_field("VmHWM:");
  mine.processor =
      static_cast<std::int64_t>(1e6 * static_cast<double>(std::clock() - processor_begin_) / CLOCKS_PER_SEC);
  mine.elapsed = static_cast<std::int64_t>(1e6 * stage::seconds_since(begin_));
  for (const auto& [name, group] : session_.stage().groups.all()) {
    mine.sent += group->traffic().total_bytes();
    for (std::size_t c = 0; c < collective_count; ++c) mine.sent_by_collective[c] += group->traffic().bytes[c];
  }
  mine.read = session_.stage().values.buffers().traffic().read;
  mine.written = session_.stage().values.buffers().traffic().written;
  return group::gather_values(session_.stage().groups.world(), session_.store().device(), mine);
}

}  // namespace strata::report
