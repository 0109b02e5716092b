#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <ostream>
#include <string>

#include "report/metric_sink.hpp"

namespace strata::report {

// Columns of the terminal on standard output; 80 where it does not tell.
int terminal_columns();

// Tells a person how a run goes: one line that is rewritten on a terminal, never longer than that is wide; elsewhere
// plain lines every `every` steps, and one after ten seconds of steps without, so that a log shows that the run lives.
// Tokens per second are the mean over the steps since the last line; on a terminal, over those of the last ten seconds.
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
  Timed recent_;                    // what tokens per second are the mean of
  std::deque<Timed> recent_steps_;  // on a terminal: its steps
  double seconds_ = 0.0;            // of the steps shown, the first left out: it allocates
  std::int64_t timed_ = 0;
  double unsaid_ = 0.0;  // seconds of the steps since the last line
  bool open_ = false;
  std::chrono::steady_clock::time_point said_;  // when `validating` last wrote a line
};

}  // namespace strata::report
