// defines: CompareArguments, compare_command
// `strata compare CONFIG --vary KEY=A,B`: the same training run with one choice varied, in turns.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace strata::cli {

struct CompareArguments {
  std::string config;
  std::vector<std::string> settings;  // a.b=c, for all variants
  std::vector<std::string> vary;      // a.b=A,B,...; the first of each is the baseline's
  int nproc = 0;                      // ranks; 0: one process
  int rounds = 10;
  std::int64_t steps = 20;        // timed steps of one run
  std::int64_t warmup_steps = 3;  // before them
  double tolerance = 1e-5;        // of losses and gradient norms, relative to the baseline's
  std::string format = "table";
  bool quiet = false;  // no progress
};

// First every variant trains once, for what it computes: its losses and gradient norms step by step beside the
// baseline's bits. Then all of them train in turns, `rounds` times, each time in the reverse order, for the times. A
// run of the baseline and a run of a variant in one round are a pair; see report/paired_ratio.hpp for when a difference
// is called one. Returns 0, also when variants differ; throws EnvironmentError with a run's last words when one fails.
int compare_command(const CompareArguments& arguments, std::ostream& out);

}  // namespace strata::cli
