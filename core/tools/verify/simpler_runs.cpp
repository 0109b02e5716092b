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
    changes.push_back({choice->kind + " " + choice->name, Division::None, 1, settings});
  }
}

std::vector<Change> changes_of(const config::RunConfig& config) {
  const config::ParallelSizes& parallel = config.parallel;
  const std::int64_t samples = config.train.micro_batch;
  std::vector<Change> changes;
  if (config.sequence_parallel)
    changes.push_back({"parallel.sequence", Division::Sequence, 1, {"parallel.sequence=false"}});
  if (parallel.size(Axis::Tensor) > 1)
    changes.push_back({"parallel.tensor",
                       Division::Tensor,
                       parallel.size(Axis::Tensor),
                       {"parallel.tensor=1", "parallel.sequence=false", "activations.partition=false"}});
  if (parallel.size(Axis::Pipeline) > 1)
    changes.push_back({"parallel.pipeline",
                       Division::Pipeline,
                       parallel.size(Axis::Pipeline),
                       {"parallel.pipeline=1", "parallel.chunks=auto"}});
  if (parallel.size(Axis::Data) > 1)
    changes.push_back({"data-parallel ranks",
                       Division::Data,
                       parallel.size(Axis::Data),
                       {"train.micro_batch=" + number(samples * parallel.size(Axis::Data))}});
  if (config.train.accumulation > 1)
    changes.push_back({"train.accumulation",
                       Division::MicroBatches,
                       1,
                       {"train.micro_batch=" + number(samples * config.train.accumulation), "train.accumulation=1"}});
  add_plugins(config, changes);
  if (config.recompute.all || !config.recompute.layers.empty())
    changes.push_back({"activations.checkpoint",
                       Division::None,
                       1,
                       {"activations.checkpoint=none", "activations.partition=false", "offload.activations.plugin=none",
                        "offload.activations_ratio=1"}});
  if (config.partitions_inputs)
    changes.push_back({"activations.partition", Division::None, 1, {"activations.partition=false"}});
  for (const config::PluginChoice* home : config.offload.homes())
    if (home->slot.find('.') != std::string::npos)
      changes.push_back({home->slot, Division::None, 1, {home->slot + ".plugin=none", home->slot + "_ratio=1"}});
  if (config.step_policy != config::StepPolicy::Plain)
    changes.push_back({"step_policy", Division::None, 1, {"step_policy=plain"}});
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

std::int64_t extent(const config::RunConfig& config, Division division) {
  switch (division) {
    case Division::None:
      return 1;
    case Division::Sequence:
    case Division::Tensor:
      return config.parallel.size(Axis::Tensor);
    case Division::Pipeline:
      return config.parallel.size(Axis::Pipeline);
    case Division::Data:
      return config.parallel.size(Axis::Data);
    case Division::MicroBatches:
      return config.train.accumulation;
  }
  return 1;
}

}  // namespace strata::verify
