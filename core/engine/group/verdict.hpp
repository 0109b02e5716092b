// Decides from the ranks' records whether a run can still make progress.
//
// [Note: What ends a wait] Ranks wait for a computing rank without limit. A run ends if a rank that others need is
// gone, stopped or has left, or gave no sign of life for the whole timeout; if two ranks call different operations
// where they should call the same; if ranks wait for each other in a circle; and if no rank computed or made progress
// for the whole timeout.
//
// [Note: One moment] Records are written at different times, so together they may show a circle that never existed. A
// circle counts only if each of its ranks published again, unchanged, after all of them had been seen in this state:
// then they were all in it at one moment, and none of them could leave it.
#pragma once
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "group/rank_record.hpp"

namespace strata::group {

// A rank's state in an observer's view. Seconds are by the observer's clock.
struct Observed {
  std::optional<RankRecord> record;  // empty: it has not joined the run yet
  ProcessState process = ProcessState::Unknown;
  double unchanged_s = 0.0;                               // time since its record's `moves` last grew
  double silent_s = 0.0;                                  // time since its record's `beat` last grew
  double stopped_s = 0.0;                                 // time since its process was first found stopped
  int first_look = 0;                                     // number of the look that first found its current state
  int last_sign = 0;                                      // number of the last look with an increased `beat`
  std::chrono::steady_clock::time_point changed, beaten;  // begins of these seconds
  std::optional<std::chrono::steady_clock::time_point> stopped;
};

// A rank's view of all ranks, updated by each look.
class Observer {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Observer(int ranks) : seen_(static_cast<std::size_t>(ranks)) {}
  // Takes the current records on the board, by rank; empty for a rank that has not joined.
  const std::vector<Observed>& look(std::vector<std::optional<RankRecord>> records, Clock::time_point now);
  // Leaves `time`, in which this observer had lost the store, out of the ranks' silence.
  void was_blind_for(Clock::duration time);

 private:
  void take(Observed& seen, RankRecord record, Clock::time_point now) const;
  std::vector<Observed> seen_;
  int looks_ = 0;
};

struct Patience {
  Patience() = default;
  explicit Patience(double timeout)
      : timeout_s(timeout), silent_s(std::max(timeout, shortest_silence_s)), device_s(10.0 * timeout) {}
  static constexpr double shortest_silence_s = 5.0;  // ranks may publish only every four seconds
  double timeout_s = 120.0;                          // communicator.timeout_s
  double stopped_s = 3.0;                            // a shorter stop is tolerated
  double silent_s = 120.0;                           // limit without a sign of life
  double device_s = 1200.0;                          // limit if all ranks wait for their devices only
};

struct RunVerdict {
  std::string cause;       // a sentence without full stop
  std::vector<int> ranks;  // ranks that it names
};

// Returns why the run cannot make progress; empty if it can. Considers all ranks.
std::optional<RunVerdict> judge(const std::vector<Observed>& ranks, const Patience& patience);

// Returns the ranks that `rank` waits for and that have not reached the operation.
std::vector<int> waited_for(const std::vector<Observed>& ranks, int rank);
// Returns a computing rank that `rank` waits for, directly or through other ranks; -1: none.
int computing_rank(const std::vector<Observed>& ranks, int rank);

// Returns "rank 3" or "ranks 0, 1".
std::string ranks_named(const std::vector<int>& ranks);

// Returns a table of every rank's activity, with the ranks of `first` on top; at most 32 lines.
std::string table_of(const std::vector<Observed>& ranks, const std::vector<int>& first);

}  // namespace strata::group
