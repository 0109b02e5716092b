#include "report/progress.hpp"

#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "text/formatted.hpp"
#include "text/terminal_output.hpp"

namespace strata::report {

int terminal_columns() {
  struct winsize size {};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

Progress::Progress(std::ostream* out, bool terminal, std::int64_t steps, std::int64_t every,
                   std::function<int()> columns)
    : out_(out),
      terminal_(terminal),
      steps_(steps),
      every_(std::max<std::int64_t>(every, 1)),
      columns_(std::move(columns)) {}

namespace {
std::string duration(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  return whole >= 3600 ? text::formatted("%lldh%02lldm", whole / 3600, whole % 3600 / 60)
                       : text::formatted("%lldm%02llds", whole / 60, whole % 60);
}

std::string text_of(const ValidationResult& validation) {
  return text::formatted("  validation loss %.4f, perplexity %.2f", validation.loss, validation.perplexity());
}

std::string progress_bar(double part) {
  constexpr std::size_t width = 20;
  const auto done = std::min(width, static_cast<std::size_t>(static_cast<double>(width) * part));
  return "[" + std::string(done, '#') + std::string(width - done, '.') + "] ";
}
}  // namespace

void Progress::write(const StepRecord& record) {
  if (record.step > first_step_) {
    seconds_ += record.step_s;
    ++timed_;
  }
  add_speed({record.tokens_per_s * record.step_s, record.step_s});
  const bool last = record.step + 1 == steps_;
  unsaid_ += record.step_s;
  const bool due = (record.step + 1) % every_ == 0 || unsaid_ >= 10.0;
  if (!terminal_ && !last && !due && record.step != first_step_ && !record.validation) return;
  unsaid_ = 0.0;
  const double seconds_a_step = timed_ > 0 ? seconds_ / static_cast<double>(timed_) : 0.0;
  const std::string left =  // unknown after the first step, which takes longer than others
      timed_ > 0 || last ? "  left " + duration(seconds_a_step * static_cast<double>(steps_ - record.step - 1)) : "";
  const std::string validation = record.validation ? text_of(*record.validation) : "";
  // Parts in the order in which a narrow terminal can do without them: the last first.
  const std::string place = place_of(record.step) + text::formatted("  loss %.4f", record.outcome.loss);
  const std::string skipped = record.applied ? "" : "  SKIPPED: gradient not finite";
  const std::string norm = text::formatted("  norm %.3f", record.outcome.gradient_norm);
  const std::string rate = text::formatted("  lr %.3g", record.learning_rate);
  const std::string speed =
      text::formatted("  %.0f tokens/s", recent_.seconds > 0.0 ? recent_.tokens / recent_.seconds : 0.0);
  if (!terminal_) {
    print(place + norm + rate + speed + left + validation + skipped);
    recent_ = {};
    return;
  }
  const std::string bar =
      progress_bar(static_cast<double>(record.step + 1) / static_cast<double>(std::max<std::int64_t>(steps_, 1)));
  std::string line;
  for (const std::string& shorter :
       {bar + place + norm + rate + speed + left + validation + skipped,
        place + norm + rate + speed + left + validation + skipped, place + norm + speed + left + validation + skipped,
        place + speed + left + validation + skipped, place + left + validation + skipped,
        place + validation + skipped}) {
    line = shorter;
    if (static_cast<int>(line.size()) < columns_()) break;
  }
  rewrite(line);
  open_ = true;
  if (last || record.validation) end_line();
}

void Progress::write(const StepValidation& validation) {
  end_line();
  print(place_of(validation.step) + text_of(validation.result));
}

void Progress::print(const std::string& line) {
  if (out_ != nullptr)
    *out_ << line << std::endl;
  else
    spdlog::info("{}", line);
}

std::string Progress::place_of(std::int64_t step) const {
  return text::formatted("step %lld/%lld", static_cast<long long>(step + 1), static_cast<long long>(steps_));
}

void Progress::add_speed(const Timed& step) {
  recent_.tokens += step.tokens;
  recent_.seconds += step.seconds;
  if (!terminal_) return;
  recent_steps_.push_back(step);
  while (recent_steps_.size() > 1 && recent_.seconds > 10.0) {
    recent_.tokens -= recent_steps_.front().tokens;
    recent_.seconds -= recent_steps_.front().seconds;
    recent_steps_.pop_front();
  }
}

// The last column stays free: some terminals begin a new line when it is written.
void Progress::rewrite(const std::string& text) {
  const int columns = std::max(columns_(), 2);
  *out_ << text::clear_line << text.substr(0, static_cast<std::size_t>(columns - 1)) << std::flush;
}

void Progress::validating(std::int64_t done, std::int64_t samples) {
  const auto now = std::chrono::steady_clock::now();
  if (said_ == std::chrono::steady_clock::time_point()) said_ = now;  // the first of this validation
  if (terminal_) {
    rewrite("validating: " + std::to_string(done) + "/" + std::to_string(samples) + " samples");
    open_ = true;
  } else if (now - said_ >= std::chrono::seconds(10)) {
    print("validating: " + std::to_string(done) + "/" + std::to_string(samples) + " samples");
    said_ = now;
  }
  if (done == samples) said_ = {};
}

void Progress::end_line() {
  if (open_) *out_ << std::endl;
  open_ = false;
}

}  // namespace strata::report
