// A config's run, scaled down for this machine's processor: its plugins and mesh, a model of few and small layers, a
// batch of few samples.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/engine_plugins.hpp"
#include "resolve/resolve_run.hpp"

namespace strata::verify {

// Arguments of `strata train CONFIG`.
struct Run {
  std::string config;                 // a file
  std::vector<std::string> settings;  // a.b=c, later ones win
  int ranks = 1;
};

// A run and its resolved config.
struct CheckedRun {
  Run run;
  resolve::ResolvedRun resolved;
  const config::RunConfig& config() const { return resolved.config; }
};

// Checks the run. Throws the errors that the run would throw before its first step.
CheckedRun check(Run run);
// Checks the run; empty if the config refuses it.
std::optional<CheckedRun> try_check(Run run);

// Scales the user's run down. Replaces sizes of the model, by the names of their options (chosen/model_sizes.hpp),
// except those set in `user_run.settings`; numbers of layers, micro-batches and data-parallel ranks are the smallest
// that the config's plugins accept. user_run.ranks 0: as few ranks as the mesh needs, with at least two data-parallel
// ones. Writes its tokens, documents of unequal lengths, to `folder`, which also holds offloaded state. Throws
// UserError: the config's own, or for a model that stays too large.
CheckedRun make_small(const Run& user_run, const std::string& folder);

// Returns settings of the model's sizes as make_small() chooses them, divisible by `tensor` ranks, with the number of
// layers of `run`.
std::vector<std::string> small_sizes(const CheckedRun& run, std::int64_t tensor);

// Returns the settings that remove an axis: its size, and the keys that need the axis.
std::vector<std::string> without_axis(Axis axis);

// Returns the reference run on one process, which must give the same numbers: the same model, samples, precision and
// optimizer. A scheduler that trains differently (Equivalence::Kind::Simulated) keeps its stages and micro-batches;
// then only the data- and tensor-parallel ranks are removed.
CheckedRun plain_run(const CheckedRun& small);
// Returns the reference run with one micro-batch per sample: equal except for the order of sums. Empty if the number of
// micro-batches is part of the scheduler's way of training.
std::optional<CheckedRun> plain_run_by_samples(const CheckedRun& small);
bool is_delayed(const CheckedRun& run);
// Returns `plain`, a reference run of `small`, with learning rates that give its step, from 0, the weights of that step
// of `small`. They differ only with `step_policy: delayed`, whose first two steps have the initial weights and whose
// third follows one update: the reference run makes the first update, or none, and others at rate 0.
Run plain_run_for_step(const CheckedRun& small, Run plain, std::size_t step);
// True if their reference runs train differently.
bool train_differently(const CheckedRun& one, const CheckedRun& other);

// Returns KEY=PLUGIN of a slot with the default plugin.
std::string default_plugin(const std::string& slot);

// Creates a plugin of the run for queries only.
template <class Interface>
std::unique_ptr<Interface> asked(const CheckedRun& run, const config::PluginChoice& choice) {
  plugins::PluginRegistry& registry = *run.resolved.registry;
  const auto context = plugins::asking_context(registry.find(kind_of<Interface>, choice.plugin), choice.options);
  return registry.create<Interface>(choice.plugin, *context);
}

// Returns the plugin's promise with these options, from its manifest.
plugins::Equivalence equivalence(const CheckedRun& run, const config::PluginChoice& choice);

}  // namespace strata::verify
