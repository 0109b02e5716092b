#include "step/learning_rate.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "plugins/engine_plugins.hpp"
#include "plugins/plugin_call.hpp"

namespace strata::step {

namespace {

template <typename Make>
auto at_place(const Place& place, Make&& make) {
  try {
    return make();
  } catch (const UserError& error) {
    throw UserError(place, error.what());
  }
}

}  // namespace

RunLearningRate::RunLearningRate(const config::RunConfig& config, plugins::PluginRegistry& registry)
    : RunLearningRate(stage::NamedPlugin<LearningRate>(), config) {
  const config::PluginChoice& choice = config.learning_rate.plugin;
  context_ = plugins::asking_context(registry.find(PluginKind::LearningRate, choice.plugin), choice.options);
  made_ = at_place(place_, [&] { return registry.create<LearningRate>(choice.plugin, *context_); });
  plugin_ = {made_.get(), choice.kind + "/" + choice.name};
}

RunLearningRate::RunLearningRate(stage::NamedPlugin<LearningRate> plugin, const config::RunConfig& config)
    : plugin_(std::move(plugin)),
      place_(config.learning_rate.place),
      steps_(config.train.steps),
      run_{config.learning_rate.base, std::max<std::int64_t>(steps_ - config.learning_rate.warmup, 0),
           config.learning_rate.warmup} {
  const auto& rules = config.parameters;
  base_is_compared_ = std::any_of(rules.begin(), rules.end(),
                                  [](const config::ParameterRule& rule) { return rule.learning_rate_factor; });
}

// `ask` is given the schedule's update.
template <typename Ask>
auto RunLearningRate::ask(const char* function, std::int64_t update, Ask&& ask) const {
  const std::int64_t after_warmup = std::max<std::int64_t>(update - run_.warmup, 0);
  const std::string call = format("{}({})", function, after_warmup);
  return at_place(place_, [&] { return plugins::plugin_call(plugin_.name, call, [&] { return ask(after_warmup); }); });
}

double RunLearningRate::rate(std::int64_t update) const {
  const double rate = ask("rate", update, [&](std::int64_t at) { return plugin_->rate(at, run_); });
  if (!std::isfinite(rate) || rate < 0)
    throw Bug("{} gives update {} the learning rate {}; a rate is finite and not negative", plugin_.name, update, rate);
  if (update >= run_.warmup) return rate;
  return rate * (static_cast<double>(update + 1) / static_cast<double>(run_.warmup));
}

std::optional<double> RunLearningRate::momentum(std::int64_t update) const {
  const std::optional<double> momentum =
      ask("momentum", update, [&](std::int64_t at) { return plugin_->momentum(at, run_); });
  if (momentum && !(*momentum >= 0 && *momentum < 1))
    throw Bug("{} gives update {} the momentum {}; a momentum is at least 0 and below 1", plugin_.name, update,
              *momentum);
  return momentum;
}

std::vector<std::int64_t> RunLearningRate::phase_starts() const {
  std::set<std::int64_t> starts{0, steps_ - 1};
  const auto add = [&](std::int64_t update) {
    if (update > 0 && update < steps_) starts.insert(update);
  };
  add(run_.warmup - 1);
  for (const std::int64_t start : ask("phase_starts", 0, [&](std::int64_t) { return plugin_->phase_starts(run_); }))
    add(run_.warmup + start);
  return {starts.begin(), starts.end()};
}

void RunLearningRate::check() const {
  for (const std::int64_t update : {std::int64_t{0}, steps_ - 1}) {
    rate(update);
    momentum(update);
  }
  if (run_.base_rate && !base_is_compared_ && has_own_rates())
    throw UserError(
        place_,
        "learning_rate.base has no effect: {} takes its rates from options of its own; leave learning_rate.base out",
        plugin_.name);
}

bool RunLearningRate::has_own_rates() const {
  RunLearningRate other = *this;
  other.run_.base_rate.reset();
  try {
    std::vector<std::int64_t> updates = phase_starts();
    constexpr std::int64_t samples = 64;
    for (std::int64_t sample = 0; sample < samples; ++sample) updates.push_back(steps_ / samples * sample);
    return std::all_of(updates.begin(), updates.end(), [&](std::int64_t update) {
      return other.rate(update) == rate(update) && other.momentum(update) == momentum(update);
    });
  } catch (const UserError&) {  // base() refuses
    return false;
  }
}

void RunLearningRate::check_momentum(const stage::NamedPlugin<Optimizer>& optimizer) const {
  if (!momentum(0) || optimizer->takes_momentum()) return;
  throw UserError(place_,
                  "{} gives every update a momentum, and {} takes none with these options: choose an optimizer and "
                  "options with a momentum, or a learning rate without one",
                  plugin_.name, optimizer.name);
}

bool RunLearningRate::same_over(std::int64_t steps) const {
  if (steps < 1) return false;
  RunLearningRate other = *this;
  other.steps_ = steps;
  other.run_.updates = std::max<std::int64_t>(steps - run_.warmup, 0);
  const std::int64_t last = std::min(steps, steps_) - 1;
  constexpr std::int64_t samples = 64;
  for (std::int64_t sample = 0; sample <= samples; ++sample) {
    const std::int64_t update = last / samples * sample + last % samples * sample / samples;
    try {
      if (rate(update) != other.rate(update) || momentum(update) != other.momentum(update)) return false;
    } catch (const UserError&) {  // a run of that length is refused
      return false;
    }
  }
  return true;
}

}  // namespace strata::step
