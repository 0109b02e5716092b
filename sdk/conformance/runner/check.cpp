#include "conformance/runner/check.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <deque>
#include <memory>

#include "conformance/general/any_plugin.hpp"
#include "conformance/general/general_cases.hpp"

namespace strata::conformance {

namespace {

using Ended = std::function<void(const CaseResult&)>;

// The failed precondition of all later cases, or "" if they can run.
std::string gate_of(std::string_view name, const Outcome& outcome) {
  if (name == loading_case && outcome.status != Status::Passed) return "not run: the plugin does not load";
  if (name == creating_case && outcome.status == Status::Skipped) return "not run: " + outcome.text;
  return "";
}

class Check {
 public:
  Check(const std::string& file, const CheckSettings& settings, const Ended& ended)
      : target_{file, settings.seed, settings.search},
        settings_(settings),
        ended_(ended),
        is_gate_ahead_(chosen(settings.only, creating_case)) {}

  // One after the other, until the plugin has been made once; then several at a time.
  std::vector<CaseResult> run(const std::vector<Case>& cases) {
    for (const Case& one : cases) {
      const bool is_gate = one.name == loading_case || one.name == creating_case;
      if (!chosen(settings_.only, one.name) || (settings_.search.seeds > 0 && !one.draws && !is_gate)) continue;
      if (!gate_.empty()) {
        add(one, {Status::Skipped, gate_, "", 0.0});
      } else if (settings_.search.in_process) {
        add(one, run_here(one, target_));
      } else {
        start(one);
        if (is_gate_ahead_ || running_.size() >= static_cast<std::size_t>(settings_.jobs)) finish_first();
        if (one.name == creating_case) is_gate_ahead_ = false;
      }
    }
    while (!running_.empty()) finish_first();
    return std::move(results_);
  }

 private:
  struct Running {
    const Case* one;
    std::unique_ptr<CaseProcess> process;
    std::optional<Outcome> outcome;
  };

  void start(const Case& one) {
    const std::chrono::seconds longer(one.draws ? settings_.search.seconds + settings_.search.seeds : 0);
    const std::chrono::seconds own = one.deadline + longer;
    running_.push_back({&one, std::make_unique<CaseProcess>(one, target_, settings_.deadline.value_or(own)), {}});
  }

  // Waits for the first in order, and takes note of others that end meanwhile.
  void finish_first() {
    while (true) {
      for (Running& running : running_) {
        if (running.outcome) continue;
        running.outcome = running.process->ended();
        if (running.outcome) running.process.reset();
      }
      if (running_.front().outcome) break;
      wait_for_a_process(std::chrono::milliseconds(50));
    }
    const Running first = std::move(running_.front());
    running_.pop_front();
    add(*first.one, *first.outcome);
  }

  void add(const Case& one, Outcome outcome) {
    if (settings_.skip_what_cannot_load && one.name == loading_case && lacks_a_library(outcome.text))
      outcome.status = Status::Skipped;
    if (gate_.empty()) gate_ = gate_of(one.name, outcome);
    results_.push_back({std::string(one.name), std::string(one.sentence), std::move(outcome)});
    ended_(results_.back());
  }

  Target target_;
  const CheckSettings& settings_;
  const Ended& ended_;
  std::string gate_;
  bool is_gate_ahead_;
  std::deque<Running> running_;  // in order
  std::vector<CaseResult> results_;
};

}  // namespace

bool chosen(const std::vector<std::string>& only, std::string_view name) {
  return only.empty() || std::any_of(only.begin(), only.end(), [&](const std::string& one) {
           return name == one || (name.starts_with(one) && name[one.size()] == '.');
         });
}

PluginResult check_plugin(const std::string& file, const CheckSettings& settings, const Ended& ended) {
  PluginResult result;
  result.file = file;
  std::vector<Case> cases;
  try {
    const Subject subject(file, settings.seed);
    result.plugin = full_name(subject.manifest());
    cases = cases_of(subject.manifest().kind);
  } catch (const UserError& error) {
    const Case first = general_cases().front();
    result.cases.push_back(
        {std::string(first.name), std::string(first.sentence), {Status::Failed, error.what(), "", 0.0}});
    ended(result.cases.back());
    return result;
  }
  result.cases = Check(file, settings, ended).run(cases);
  return result;
}

}  // namespace strata::conformance
