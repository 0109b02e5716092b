#include "plan/placement.hpp"

#include <algorithm>
#include <utility>

namespace strata::plan {

namespace {

constexpr const char* origin = "offload: auto";

bool gives(const config::RunConfig& config, const std::string& key) {
  return std::ranges::find(config.offload.given, key) != config.offload.given.end();
}

std::string slot_of(StateClass state) {
  return std::string("offload.") + to_string(state);
}

std::optional<config::PluginChoice>& home_in(config::OffloadConfig& offload, StateClass state) {
  return state == StateClass::Parameters  ? offload.parameters
         : state == StateClass::Optimizer ? offload.optimizer
                                          : offload.activations;
}

double& ratio_in(config::OffloadConfig& offload, StateClass state) {
  return state == StateClass::Parameters  ? offload.parameters_ratio
         : state == StateClass::Optimizer ? offload.optimizer_ratio
                                          : offload.activations_ratio;
}

void list(config::RunConfig& config, const std::string& path) {
  config.origins[path] = origin;
}

// Puts `choice`, made for another slot, into this one.
config::PluginChoice in_slot(config::RunConfig& config, const config::PluginChoice& choice, const std::string& slot) {
  config::PluginChoice here = choice;
  here.slot = slot;
  list(config, slot + ".plugin");
  for (const std::string& name : choice.options.names()) list(config, slot + "." + choice.name + "." + name);
  return here;
}

int homes_of(const Choices& choices, StateClass state) {
  const std::size_t all = choices.homes.size();
  return static_cast<int>(state == StateClass::Parameters ? std::min(choices.homes_of_parameters, all) : all);
}

std::vector<Residence> residences(const Choices& choices, StateClass state, const std::vector<double>& ratios) {
  std::vector<Residence> all{Residence{}};
  if (!choices.open[static_cast<std::size_t>(state)]) return all;
  const bool whole = state == StateClass::Optimizer && choices.whole_optimizer;
  for (int home = 0; home < homes_of(choices, state); ++home)
    for (const double ratio : ratios)
      if (ratio == 1.0 || !whole) all.push_back({home, ratio});
  return all;
}

std::string scalar(const OptionValue& value) {
  const std::string text = config::to_text(value);
  const bool plain = !text.empty() && text.find_first_of(":#'\"{}[], ") == std::string::npos;
  return plain || !std::holds_alternative<std::string>(value) ? text : "\"" + text + "\"";
}

std::string flow(const config::PluginChoice& choice) {
  std::string text = "{plugin: " + scalar(choice.plugin);
  for (const std::string& option : choice.given) text += ", " + option + ": " + scalar(choice.options.value(option));
  return text + "}";
}

}  // namespace

const char* to_string(StateClass state) {
  return state == StateClass::Parameters ? "parameters" : state == StateClass::Optimizer ? "optimizer" : "activations";
}

Choices choices_of(const config::RunConfig& config) {
  Choices choices;
  for (const auto& home : {config.offload.host, config.offload.disk})
    if (home) choices.homes.push_back(*home);
  for (const StateClass state : state_classes)
    choices.open[static_cast<std::size_t>(state)] = !gives(config, slot_of(state) + ".plugin");
  choices.recompute = !gives(config, "activations.checkpoint");
  choices.schedulers = {config.scheduler};
  return choices;
}

MemoryPlacement lowest(const Choices& choices) {
  MemoryPlacement placement;
  placement.recompute = choices.recompute;
  for (const StateClass state : state_classes)
    if (choices.open[static_cast<std::size_t>(state)]) placement.of(state).home = homes_of(choices, state) - 1;
  return placement;
}

std::vector<MemoryPlacement> coarse(const Choices& choices, int staging_divisor) {
  const std::vector<double> ratios{0.5, 1.0};
  std::vector<MemoryPlacement> all;
  for (int scheduler = 0; scheduler < static_cast<int>(choices.schedulers.size()); ++scheduler)
    for (const bool recompute : choices.recompute ? std::vector<bool>{false, true} : std::vector<bool>{false})
      for (const Residence& parameters : residences(choices, StateClass::Parameters, ratios))
        for (const Residence& optimizer : residences(choices, StateClass::Optimizer, ratios))
          for (const Residence& activations : residences(choices, StateClass::Activations, ratios)) {
            if (activations.home >= 0 && choices.recompute && !recompute) continue;  // then no input waits
            all.push_back({{parameters, optimizer, activations}, recompute, scheduler, staging_divisor});
          }
  return all;
}

std::vector<MemoryPlacement> finer(const Choices& choices, const MemoryPlacement& found) {
  const std::vector<double> quarters{0.25, 0.5, 0.75, 1.0};
  std::vector<MemoryPlacement> all{found};
  for (const StateClass state : state_classes) {
    if (found.of(state).home < 0 || (state == StateClass::Optimizer && choices.whole_optimizer)) continue;
    std::vector<MemoryPlacement> more;
    for (const MemoryPlacement& one : all)
      for (const double ratio : quarters) {
        MemoryPlacement other = one;
        other.of(state).ratio = ratio;
        more.push_back(other);
      }
    all = std::move(more);
  }
  return all;
}

bool takes_no_less(const MemoryPlacement& large, const MemoryPlacement& small) {
  if (large.scheduler != small.scheduler || large.staging_divisor != small.staging_divisor) return false;
  if (large.recompute && !small.recompute) return false;
  return std::ranges::all_of(state_classes, [&](StateClass state) {
    const Residence &more = large.of(state), &less = small.of(state);
    return more.home < 0 || (more.home == less.home && more.ratio <= less.ratio);
  });
}

config::RunConfig placed(const config::RunConfig& config, const Choices& choices, const MemoryPlacement& placement) {
  config::RunConfig run = config;
  run.offload.automatic = false;
  list(run, "offload.automatic");
  for (const StateClass state : state_classes) {
    const Residence& residence = placement.of(state);
    if (!choices.open[static_cast<std::size_t>(state)] || residence.home < 0) continue;
    home_in(run.offload, state) = in_slot(run, choices.homes[static_cast<std::size_t>(residence.home)], slot_of(state));
    ratio_in(run.offload, state) = residence.ratio;
    list(run, slot_of(state) + "_ratio");
  }
  if (choices.recompute) {
    run.recompute = {placement.recompute, {}};
    list(run, "activations.checkpoint");
  }
  if (placement.scheduler > 0)
    run.scheduler = in_slot(run, choices.schedulers[static_cast<std::size_t>(placement.scheduler)], "scheduler");
  if (placement.staging_divisor > 1) {
    run.offload.read_ahead /= placement.staging_divisor;
    run.offload.update_elements = std::max<std::int64_t>(run.offload.update_elements / placement.staging_divisor, 1);
    list(run, "offload.read_ahead");
    list(run, "offload.update_elements");
  }
  return run;
}

std::vector<std::string> as_yaml(const config::RunConfig& placed, const Choices& choices) {
  std::vector<std::string> lines;
  if (choices.schedulers.size() > 1) lines.push_back("scheduler: " + flow(placed.scheduler));
  if (choices.recompute)
    lines.push_back(std::string("activations: {checkpoint: ") + (placed.recompute.all ? "all}" : "none}"));
  config::OffloadConfig offload = placed.offload;
  std::string section;
  const auto add = [&](const std::string& key, const std::string& value) {
    section += (section.empty() ? "" : ", ") + key + ": " + value;
  };
  for (const StateClass state : state_classes) {
    const auto& home = home_in(offload, state);
    add(to_string(state), home ? flow(*home) : "none");
    if (home && ratio_in(offload, state) < 1.0)
      add(std::string(to_string(state)) + "_ratio", config::to_text(ratio_in(offload, state)));
  }
  add("read_ahead", std::to_string(offload.read_ahead));
  add("update_elements", std::to_string(offload.update_elements));
  lines.push_back("offload: {" + section + "}");
  return lines;
}

}  // namespace strata::plan
