// `strata compare CONFIG --vary KEY=A,B`: the same training run with some choices varied, in turns.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace strata::cli {

struct CompareArguments {
  std::vector<std::string> configs;   // files; each of several is a variant
  std::vector<std::string> settings;  // a.b=c, for all variants
  std::vector<std::string> vary;      // a.b=A,B,...; the first of each is the baseline's
  std::vector<std::string> variants;  // "a.b=A c=B": settings of one variant; the first is the baseline's
  int nproc = 0;                      // ranks; 0: one process
  bool oversubscribe = false;
  int rounds = 8;
  std::int64_t steps =
      0;  // timed steps of one run; 0: as many as take a second, 20 to 60, and 20 in the run for what is computed
  std::int64_t warmup_steps = 3;    // before them
  std::optional<double> tolerance;  // of losses, norms and digests, relative; empty: see compare_command
  std::string format = "table";
  std::string html;    // a file for the page with curves and bars; empty: none
  bool apart = false;  // timed runs one after the other
  bool quiet = false;  // no progress
};

// First every variant trains once, for what it computes: its losses, gradient norms and digests of gradients, step by
// step beside the baseline's. Then all of them train for the times, twice in every round, forth and back: all at once
// and step by step in turns (run_in_turns.hpp) where the machine's memory holds them all, else one after the other, as
// with `apart`. The runs of the baseline and of a variant in one half of a round are a pair; see
// tools/compare/paired_ratio.hpp for when a difference is called one. Variants are those of the configs, --variant and
// --vary, in every combination; with neither of the last two, the config's own `compare:`. The tolerance that is not
// given is the largest that the variants' precisions declare, or 1e-5. Returns 0, also when variants differ; throws
// EnvironmentError with a run's last words when one fails.
int compare_command(const CompareArguments& arguments, std::ostream& out);

}  // namespace strata::cli
