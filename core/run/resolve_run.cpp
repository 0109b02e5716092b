#include "run/resolve_run.hpp"

#include <strata/model.hpp>
#include <strata/options_in_file.hpp>

#include <algorithm>

#include "checkpoint/hugging_face.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "plugin_host/plugin_call.hpp"
#include "run/memory_budget.hpp"
#include "step/learning_rate.hpp"
#include "text/size.hpp"

namespace strata::runtime {

namespace {

// Ranks that share the memory this process measures. 0: other processes resolve the same config and would measure
// other figures.
int ranks_of(const config::World& world) {
  return world.starts_ranks || world.size == 1 ? static_cast<int>(world.size) : 0;
}

// The largest divisor of the batch that "auto" is with which no rank needs more than its budget: training is the same
// with any.
void answer_micro_batch(config::DialectAnswers& answers, std::int64_t batch, const config::RunConfig& run,
                        plugin_host::PluginRegistry& registry, int local_ranks) {
  if (local_ranks == 0 && run.memory_budget == 0) {
    answers.micro_batch = batch;
    answers.micro_batch_origin =
        "all of them: ranks that torchrun, mpirun or srun started would each measure other free memory; set "
        "memory_budget=SIZE for the largest part that fits";
    return;
  }
  const MemoryBudget budget = memory_budget(run, run.memory_budget, registry, std::max(local_ranks, 1));
  std::string tried;
  std::int64_t bytes = 0;
  for (std::int64_t samples = batch; samples > 0; --samples) {
    if (batch % samples != 0) continue;
    config::RunConfig candidate = run;
    candidate.train.micro_batch = samples;
    candidate.train.accumulation = run.train.accumulation * (batch / samples);
    bytes = bytes_needed(candidate, registry);
    tried += (tried.empty() ? "" : ", ") + std::to_string(samples) + (tried.empty() ? " take " : ": ") +
             config::format_bytes(bytes);
    if (bytes > budget.bytes) continue;
    answers.micro_batch = samples;
    answers.micro_batch_origin = "the largest part of them that fits into " + config::format_bytes(budget.bytes) +
                                 " a rank (" + budget.origin + "): " + tried;
    return;
  }
  throw UserError("a micro-batch of one sample takes " + config::format_bytes(bytes) + " a rank, and there are " +
                  config::format_bytes(budget.bytes) + " (" + budget.origin +
                  "); use more ranks, a higher stage, activations.checkpoint=all, a shorter model.seq_len, or "
                  "memory_budget=SIZE");
}

// Keeps what a model's file decides in the config, as if the config had said it.
class FileOptions final : public OptionsInFile {
 public:
  explicit FileOptions(config::RunConfig& run) : run_(run), choice_(run.model.plugin) {}

  void take(std::string_view option, const OptionValue& value, std::string_view key) override {
    const std::string name(option), path = choice_.slot + "." + choice_.name + "." + name;
    const std::string now = config::to_text(choice_.options.value(name)), in_file = config::to_text(value);
    const bool given = std::find(choice_.given.begin(), choice_.given.end(), name) != choice_.given.end();
    if (given && now != in_file && contradiction.empty())
      contradiction = path + " is " + now + ", and the config.json of model.init has " + std::string(key) + " " +
                      in_file + "; leave the option out to take the file's";
    choice_.options.set(name, value);
    for (config::Resolved& row : run_.listing)
      if (row.path == path && !given) row = {path, value, run_.model.init + "/config.json " + std::string(key)};
  }

  std::string contradiction;  // of an option that the config gives; empty: none

 private:
  config::RunConfig& run_;
  config::PluginChoice& choice_;
};

// The model's sizes are those of the folder that its weights come from.
void take_file_options(config::RunConfig& run, plugin_host::PluginRegistry& registry) {
  if (run.model.init.empty()) return;
  FileOptions options(run);
  const config::PluginChoice& choice = run.model.plugin;
  const std::unique_ptr<PluginContext> context =
      plugin_host::asking_context(registry.find(PluginKind::Model, choice.plugin), choice.options, &options);
  const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
  const std::string text = checkpoint::HuggingFaceFolder(run.model.init).config_text();
  plugin_call(choice.kind + "/" + choice.name, "configure()", 0, [&] { model->configure(text); });
  if (!options.contradiction.empty()) throw UserError(choice.options_place, options.contradiction);
}

// The width of the model's residual stream: the last extent of what its first layer gives.
std::int64_t hidden_size(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  const config::PluginChoice& choice = config.model.plugin;
  const std::unique_ptr<PluginContext> context =
      plugin_host::asking_context(registry.find(PluginKind::Model, choice.plugin), choice.options);
  const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
  if (!config.model.init.empty()) model->configure(checkpoint::HuggingFaceFolder(config.model.init).config_text());
  const LayerInfo first = model->describe(0, {1, config.model.seq_len, at::kFloat});
  if (first.outputs.empty() || first.outputs.front().extents.empty())
    throw UserError(choice.place, "model " + choice.plugin +
                                      " does not say its hidden size, which a value \"auto\" needs; give the value");
  return first.outputs.front().extents.back();
}

}  // namespace

ResolvedRun resolve_run(std::vector<config::Node> trees, const config::World& world,
                        std::shared_ptr<plugin_host::PluginRegistry> registry, const config::PluginSource& plugins,
                        config::DataSection data) {
  ResolvedRun run;
  run.registry = std::move(registry);
  config::DialectAnswers answers;
  const auto resolve = [&] {
    std::vector<config::Node> own = trees;
    if (own.size() > 1)
      if (const config::Dialect* dialect = config::dialect_of(own[1]))
        run.translation = dialect->translate(own, plugins, answers);
    run.config = config::resolve(std::move(own), world, plugins, data);
    take_file_options(run.config, *run.registry);
  };
  resolve();
  if (run.translation && run.translation->asks_hidden_size) {
    answers.hidden_size = hidden_size(run.config, *run.registry);
    resolve();
  }
  if (run.translation && run.translation->automatic_batch > 0) {
    try {
      answer_micro_batch(answers, run.translation->automatic_batch, run.config, *run.registry, ranks_of(world));
    } catch (const UserError& error) {
      throw UserError(run.translation->automatic_batch_place, std::string("\"auto\" as the batch: ") + error.what());
    }
    resolve();
  }
  RunLearningRate(run.config, *run.registry).check();
  if (run.translation) config::say_derived(*run.translation, run.config.listing);
  return run;
}

ResolvedRun read_run(
    const std::string& config_file, const std::vector<std::string>& settings, const config::World& world,
    config::DataSection data,
    const std::function<void(std::vector<config::Node>& trees, plugin_host::PluginRegistry& registry)>& extend) {
  std::vector<config::Node> trees = config::read_trees(config_file, settings);
  std::shared_ptr<plugin_host::PluginRegistry> registry = plugin_host::open_registry(config::plugin_path(trees));
  if (extend) extend(trees, *registry);
  const plugin_host::EnginePlugins plugins(registry);
  return resolve_run(std::move(trees), world, std::move(registry), plugins, data);
}

}  // namespace strata::runtime
