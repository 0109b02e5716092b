// Sink of progress lines, for people.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <ostream>
#include <string>

#include "report/metric_sink.hpp"

namespace strata::report {

// Returns the number of columns of the terminal on standard output; 80 if it is unknown.
int terminal_columns();

// On a terminal, rewrites one line that fits its width. Elsewhere prints a line every `every` steps, and one after ten
// seconds without, so that a log shows progress. Tokens per second are the mean over the steps since the last line; on
// a terminal, over the last ten seconds.
class Progress final : public MetricSink {
 public:
  // `out`: null for the log, which is no terminal. `columns`: called for each line, as a terminal's width may change.
  Progress(std::ostream* out, bool terminal, std::int64_t steps, std::int64_t every,
           std::function<int()> columns = terminal_columns);
  void begin(std::int64_t steps_done) override { first_step_ = steps_done; }
  // On a terminal rewrites the line; elsewhere prints a line every ten seconds.
  void validating(std::int64_t done, std::int64_t samples) override;
  void write(const StepRecord& record) override;
  void write(const StepValidation& validation) override;
  void finish(const RunEnd& /*end*/) override { end_line(); }
  // Ends an unfinished line, so that other output begins on a fresh one.
  void end_line();

 private:
  struct Timed {
    double tokens = 0.0;
    double seconds = 0.0;
  };
  void add_speed(const Timed& step);
  void print(const std::string& line);
  void rewrite(const std::string& text);
  std::string place_of(std::int64_t step) const;

  std::ostream* out_;
  bool terminal_;
  std::int64_t steps_;
  std::int64_t every_;
  std::int64_t first_step_ = 0;
  std::function<int()> columns_;
  Timed recent_;                                // sums of the steps whose mean is tokens per second
  std::deque<Timed> recent_steps_;              // steps of `recent_`, on a terminal
  double seconds_ = 0.0;                        // duration of all steps but the first, which allocates
  std::int64_t timed_ = 0;                      // number of steps in seconds_
  double unsaid_ = 0.0;                         // seconds of the steps since the last line
  bool open_ = false;                           // true: the line on the terminal is unfinished
  std::chrono::steady_clock::time_point said_;  // time of the last line of `validating`
};

}  // namespace strata::report
