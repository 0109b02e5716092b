// `strata compare CONFIG --vary KEY=A,B`: the same training run with some values varied.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace strata::cli {

struct CompareArguments {
  std::vector<std::string> configs;   // files; several files are several variants
  std::vector<std::string> settings;  // a.b=c, for all variants
  std::vector<std::string> vary;      // a.b=A,B,...; the first value is the baseline's
  std::vector<std::string> variants;  // "a.b=A c=B": settings of one variant; the first variant is the baseline
  int nproc = 0;                      // ranks; 0: one process
  bool oversubscribe = false;
  int rounds = 8;
  std::int64_t steps = 0;  // timed steps of one run; 0: as many as take a second, 20 to 60 (the recorded run: 20)
  std::int64_t warmup_steps = 3;    // untimed steps before them
  std::optional<double> tolerance;  // relative, of losses, norms and digests; empty: see compare_command
  std::string format = "table";
  std::string html;    // file for the HTML page; empty: none
  bool apart = false;  // run timed runs one after the other
  bool quiet = false;  // no progress
};

// First every variant trains once to record its losses, gradient norms and gradient digests per step. Then the variants
// are timed, twice in every round, in forward and in reverse order: all together, taking turns step by step
// (run_in_turns.hpp), if they fit in memory, else one after the other, as with `apart`. The runs of the baseline and of
// a variant in one half of a round form a pair; tools/compare/paired_ratio.hpp defines when they differ. The variants
// are all combinations of the configs, --variant and --vary; without the last two, the config's own `compare:`. The
// default tolerance is the largest that the variants' precision plugins declare, or 1e-5. Returns 0 even if variants
// differ; throws EnvironmentError with the last lines of a run that fails.
int compare_command(const CompareArguments& arguments, std::ostream& out);

}  // namespace strata::cli
