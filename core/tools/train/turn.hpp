// Runs on one machine that alternate: one run makes a step while the others wait. `strata compare` assigns the turns
// (core/tools/compare/run_in_turns.hpp); this is the rank's side.
//
// Two pipes connect a run with the process that assigns turns. Before a step, every rank writes a byte to `arrivals`,
// then reads one from `turns` to begin. No rank can take another's turn, because none reaches its next step until all
// have ended this one.
#pragma once
#include <functional>
#include <string>

namespace strata::cli {

class Turn {
 public:
  // `pipes` is the value of --turns: "TURNS,ARRIVALS", two open descriptors; empty: never wait. Throws UserError for
  // any other text.
  explicit Turn(const std::string& pipes);
  // Blocks until it is this run's turn, or until `stop_requested` returns a signal. Throws EnvironmentError if the
  // other side has ended.
  void wait(const std::function<int()>& stop_requested) const;

 private:
  int turns_ = -1;
  int arrivals_ = -1;
};

}  // namespace strata::cli
