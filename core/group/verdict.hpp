// Whether a run can still make progress, judged from what its ranks say of themselves.
//
// [Note: What ends a wait] A rank that computes is waited for, however long. A run ends when a rank that others need is
// gone, stopped or has left; when two ranks call different operations where they should call the same; when ranks wait
// for each other in a circle; and when for the whole timeout no rank computed and none made progress.
//
// [Note: One moment] Records are written at different times, so two of them may show a circle that never was. A circle
// counts only when each of its ranks gave a sign of life, unchanged, after all of them had been seen as they are: then
// they stood so at one moment, and nobody was left to change it.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "group/rank_record.hpp"

namespace strata::runtime {

// One rank as an observer has seen it. Seconds are the observer's own.
struct Observed {
  std::optional<RankRecord> record;  // none: it has not come to the run yet
  ProcessState process = ProcessState::Unknown;
  double unchanged_s = 0.0;  // since its record's `moves` last grew
  double silent_s = 0.0;     // since its record's `beat` last grew
  double stopped_s = 0.0;    // since its process was found stopped
  int first_look = 0;        // the observer's look that first saw it as it is
  int last_sign = 0;         // the look that last saw its `beat` grown
};

// What one rank sees of all, look by look.
class Observer {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Observer(int ranks) : seen_(static_cast<std::size_t>(ranks)), memories_(seen_.size()) {}
  // Takes the records as they stand on the board, by rank, none for a rank that has not come.
  const std::vector<Observed>& look(std::vector<std::optional<RankRecord>> records, Clock::time_point now);

 private:
  struct Memory {
    Clock::time_point changed, beaten;
    std::optional<Clock::time_point> stopped;
  };
  void take(Observed& seen, Memory& memory, RankRecord record, Clock::time_point now) const;
  std::vector<Observed> seen_;
  std::vector<Memory> memories_;
  int looks_ = 0;
};

struct Patience {
  double timeout_s = 120.0;  // communicator.timeout_s
  double stopped_s = 3.0;    // a short stop is forgiven
  double silent_s = 20.0;    // of a rank on another host, whose process cannot be looked at
};

struct Verdict {
  std::string cause;       // one sentence, without a full stop
  std::vector<int> ranks;  // whom it names
};

// Why the run cannot make progress, or nothing.
std::optional<Verdict> judge(const std::vector<Observed>& ranks, const Patience& patience);

// The ranks that `rank` waits for.
std::vector<int> waited_for(const std::vector<Observed>& ranks, int rank);
// A rank that computes and that `rank` waits for, directly or through others; -1: none.
int computing_rank(const std::vector<Observed>& ranks, int rank);

// What each rank does, the ranks of `first` on top; 32 lines at most.
std::string table_of(const std::vector<Observed>& ranks, const std::vector<int>& first);

}  // namespace strata::runtime
