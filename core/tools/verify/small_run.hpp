// A config's run, made small enough for this machine's processor: its plugins and its mesh, a model of few and small
// layers, a batch of few samples.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.hpp"
#include "plugins/engine_plugins.hpp"
#include "resolve/resolve_run.hpp"

namespace strata::verify {

// What `strata train CONFIG` is started with.
struct Run {
  std::string config;                 // a file
  std::vector<std::string> settings;  // a.b=c, later ones win
  int ranks = 1;
};

// A run and what its config resolves to.
struct CheckedRun {
  Run run;
  resolve::ResolvedRun resolved;
  const config::RunConfig& config() const { return resolved.config; }
};

// Throws what the run would throw before its first step.
CheckedRun check(Run run);
// The same; nothing where the config refuses the run.
std::optional<CheckedRun> try_check(Run run);

// The user's run made small. Sizes of the model are replaced by their options' names (programs/model_sizes.hpp), those
// that `user_run.settings` gives excepted; of layers, micro-batches and data-parallel ranks it has as few as the
// config's plugins accept. user_run.ranks 0: as few ranks as the mesh needs, with two or more that are data-parallel.
// Writes its tokens, documents of unequal lengths, to `folder`, which is where offloaded state goes too. Throws
// UserError: the config's own, or that of the model's when it stays too large.
CheckedRun make_small(const Run& user_run, const std::string& folder);

// Settings of the model's sizes as make_small() chooses them, which so many tensor-parallel ranks can share; as many
// layers as `run` has.
std::vector<std::string> small_sizes(const CheckedRun& run, std::int64_t tensor);

// The plain run on one process that must give the same numbers: the same model, samples, precision and optimizer. What
// trains another way than plain stays: a scheduler that says so (Equivalence::Kind::Simulated), with its stages and
// micro-batches; then only the data- and tensor-parallel ranks are gone.
CheckedRun plain_run(const CheckedRun& small);
// The same with its batch in as many micro-batches as it has samples: equal but for the order of sums. Nothing where
// the number of micro-batches is the scheduler's way of training.
std::optional<CheckedRun> plain_run_by_samples(const CheckedRun& small);
bool is_delayed(const CheckedRun& run);
// `plain`, a plain run of `small`, with the learning rates at which its step, from 0, has the weights of that step of
// `small`. They differ only with `step_policy: delayed`, whose first two steps have the first weights and whose third
// has had one update. So no plain run makes an update late: it makes the first one, or none, and others at rate 0.
Run plain_run_for_step(const CheckedRun& small, Run plain, std::size_t step);
// Whether their plain runs train in different ways.
bool train_differently(const CheckedRun& one, const CheckedRun& other);

// KEY=PLUGIN of a slot, as configs have it that do not name it.
std::string default_plugin(const std::string& slot);

// A plugin of the run that is only asked.
template <class Interface>
std::unique_ptr<Interface> asked(const CheckedRun& run, const config::PluginChoice& choice) {
  plugins::PluginRegistry& registry = *run.resolved.registry;
  const auto context = plugins::asking_context(registry.find(kind_of<Interface>, choice.plugin), choice.options);
  return registry.create<Interface>(choice.plugin, *context);
}

// The plugin's promise with these options, by its manifest.
plugins::Equivalence equivalence(const CheckedRun& run, const config::PluginChoice& choice);

}  // namespace strata::verify
