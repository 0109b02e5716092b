#include "tools/train/progress.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include "text/formatted.hpp"
#include "text/terminal_output.hpp"

namespace strata::report {

Progress::Progress(std::ostream& out, bool terminal, std::int64_t steps, std::int64_t every, std::int64_t first_step)
    : out_(out),
      terminal_(terminal),
      steps_(steps),
      every_(std::max<std::int64_t>(every, 1)),
      first_step_(first_step) {}

namespace {
std::string duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  return whole >= 3600 ? formatted("%lldh%02lldm", whole / 3600, whole % 3600 / 60)
                       : formatted("%lldm%02llds", whole / 60, whole % 60);
}
}  // namespace

void Progress::show(const StepRecord& record) {
  if (record.step > first_step_) {
    seconds_ += record.step_s;
    ++timed_;
  }
  const bool last = record.step + 1 == steps_;
  unsaid_ += record.step_s;
  const bool due = (record.step + 1) % every_ == 0 || unsaid_ >= 10.0;
  if (!terminal_ && !last && !due && record.step != first_step_ && !record.validation) return;
  unsaid_ = 0.0;
  const double seconds_a_step = timed_ > 0 ? seconds_ / static_cast<double>(timed_) : 0.0;
  const std::string left =  // unknown after the first step, which takes longer than others
      timed_ > 0 || last ? "  left " + duration(seconds_a_step * static_cast<double>(steps_ - record.step - 1)) : "";
  const std::string validation = record.validation ? formatted("  validation loss %.4f, perplexity %.2f",
                                                               record.validation->loss, record.validation->perplexity())
                                                   : "";
  char text[320];
  std::snprintf(text, sizeof text, "step %lld/%lld  loss %.4f  norm %.3f  lr %.3g  %.0f tokens/s%s%s%s",
                static_cast<long long>(record.step + 1), static_cast<long long>(steps_), record.outcome.loss,
                record.outcome.gradient_norm, record.learning_rate, record.tokens_per_s, left.c_str(),
                validation.c_str(), record.applied ? "" : "  SKIPPED: gradient not finite");
  if (!terminal_) {
    out_ << text << std::endl;
    return;
  }
  constexpr int width = 20;
  const int done = static_cast<int>(width * (record.step + 1) / std::max<std::int64_t>(steps_, 1));
  out_ << text::clear_line << "[" << std::string(static_cast<std::size_t>(done), '#')
       << std::string(static_cast<std::size_t>(width - done), '.') << "] " << text << std::flush;
  open_ = true;
  if (last || record.validation) finish();
}

void Progress::validating(std::int64_t done, std::int64_t samples) {
  const auto now = std::chrono::steady_clock::now();
  if (said_ == std::chrono::steady_clock::time_point()) said_ = now;  // the first of this validation
  if (terminal_) {
    out_ << text::clear_line << "validating: " << done << "/" << samples << " samples" << std::flush;
    open_ = true;
  } else if (now - said_ >= std::chrono::seconds(10)) {
    out_ << "validating: " << done << "/" << samples << " samples" << std::endl;
    said_ = now;
  }
  if (done == samples) said_ = {};
}

void Progress::finish() {
  if (open_) out_ << std::endl;
  open_ = false;
}

}  // namespace strata::report
