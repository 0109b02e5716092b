#include "tools/verify/simpler_runs.hpp"

#include <utility>

namespace strata::verify {

namespace {

using Settings = std::vector<std::string>;

struct Change {
  std::string without;
  Division division;
  std::int64_t fewer_ranks;  // by this factor
  Settings settings;
};

std::string number(std::int64_t value) {
  return std::to_string(value);
}

// One for each slot of the mesh that does not have its default plugin.
void add_plugins(const config::RunConfig& config, std::vector<Change>& changes) {
  for (const config::PluginChoice* choice : {&config.partitioner, &config.scheduler}) {
    Settings settings{default_plugin(choice->slot)};
    if (settings.front() == choice->slot + ".plugin=" + choice->name) continue;
    // Settings that the default plugin may not support.
    if (choice == &config.partitioner)
      settings.insert(settings.end(), {"offload.parameters.plugin=none", "offload.parameters_ratio=1"});
    if (choice == &config.scheduler) settings.push_back("parallel.chunks=auto");
    changes.push_back({choice->kind + " " + choice->name, {}, 1, settings});
  }
}

std::vector<Change> changes_of(const config::RunConfig& config) {
  const config::ParallelSizes& parallel = config.parallel;
  const std::int64_t samples = config.train.micro_batch;
  std::vector<Change> changes;
  if (config.sequence_parallel)
    changes.push_back({"parallel.sequence",
                       {std::string(slices_of_the_sequence), parallel.size(Axis::Tensor)},
                       1,
                       {"parallel.sequence=false"}});
  for (const Axis axis : axes) {
    const std::int64_t ranks = parallel.size(axis);
    if (ranks == 1) continue;
    Settings settings = without_axis(axis);
    if (axis == Axis::Data) settings.push_back("train.micro_batch=" + number(samples * ranks));
    changes.push_back({config::key_of(axis), {std::string(info_of(axis).ranks), ranks}, ranks, settings});
  }
  if (config.train.accumulation > 1)
    changes.push_back({"train.accumulation",
                       {"micro-batches", config.train.accumulation},
                       1,
                       {"train.micro_batch=" + number(samples * config.train.accumulation), "train.accumulation=1"}});
  add_plugins(config, changes);
  if (config.recompute.all || !config.recompute.layers.empty())
    changes.push_back({"activations.checkpoint",
                       {},
                       1,
                       {"activations.checkpoint=none", "activations.partition=false", "offload.activations.plugin=none",
                        "offload.activations_ratio=1"}});
  if (config.partitions_inputs) changes.push_back({"activations.partition", {}, 1, {"activations.partition=false"}});
  for (const config::PluginChoice* home : config.offload.homes())
    if (home->slot.find('.') != std::string::npos)
      changes.push_back({home->slot, {}, 1, {home->slot + ".plugin=none", home->slot + "_ratio=1"}});
  if (config.step_policy != config::StepPolicy::Plain) changes.push_back({"step_policy", {}, 1, {"step_policy=plain"}});
  return changes;
}

}  // namespace

std::vector<SimplerRun> simpler_runs(const CheckedRun& small) {
  std::vector<SimplerRun> runs;
  for (const Change& change : changes_of(small.config())) {
    Run run = small.run;
    run.ranks /= static_cast<int>(change.fewer_ranks);
    run.settings.insert(run.settings.end(), change.settings.begin(), change.settings.end());
    if (std::optional<CheckedRun> checked = try_check(std::move(run)))
      runs.push_back({change.without, change.division, std::move(*checked)});
  }
  return runs;
}

}  // namespace strata::verify
