#include "runtime/resolve_run.hpp"

#include <strata/model.hpp>

#include <algorithm>

#include "checkpoint/hugging_face.hpp"
#include "config/engine_schema.hpp"
#include "config/size.hpp"
#include "plugin_host/engine_plugins.hpp"
#include "runtime/largest_micro_batch.hpp"
#include "runtime/run.hpp"

namespace strata::runtime {

namespace {

constexpr const char* budget_key = "memory_budget";

struct Budget {
  std::int64_t bytes = 0;  // 0: what the device offers
  config::Resolved listed;
};

// The last layer wins.
Budget take_budget(const std::vector<config::Node>& layers) {
  Budget budget{0, {budget_key, "auto", "the default"}};
  for (const config::Node& layer : layers) {
    const config::Node* node = layer.get(budget_key);
    if (node == nullptr) continue;
    const bool automatic = config::is_auto(*node);
    budget.bytes =
        automatic
            ? 0
            : std::get<std::int64_t>(config::typed_option(*node, config::engine_key(budget_key)->option, budget_key));
    budget.listed = {budget_key, automatic ? "auto" : std::to_string(budget.bytes), node->origin};
  }
  return budget;
}

// More samples than a data set has would be the same ones again.
std::int64_t samples_for_one_rank(const config::RunConfig& config) {
  if (config.data.path.empty()) return 1 << 16;
  return std::max<std::int64_t>(open_data(config, config.data).samples().count() / config.parallel.data, 1);
}

void answer_micro_batch(config::DeepSpeedAnswers& answers, const config::RunConfig& run, std::int64_t given_budget,
                        plugin_host::PluginRegistry& registry, int local_ranks) {
  if (local_ranks == 0 && given_budget == 0)
    throw UserError(
        "it is the largest that fits, and every rank of another launcher would measure other free "
        "memory; give --set memory_budget=SIZE, or --set train.micro_batch=N, or start the ranks with --nproc");
  const MemoryBudget budget = memory_budget(run, given_budget, registry, std::max(local_ranks, 1));
  const std::int64_t most = samples_for_one_rank(run);
  const MicroBatchFit found = largest_micro_batch(run, registry, budget.bytes, most);
  if (found.samples == 0)
    throw UserError("a micro-batch of one sample takes " + config::format_bytes(found.bytes) +
                    " a rank, and there are " + config::format_bytes(budget.bytes) + " (" + budget.origin +
                    "); use more ranks, a higher stage, activations.checkpoint=all, a shorter model.seq_len, or "
                    "memory_budget=SIZE");
  answers.micro_batch = found.samples;
  answers.micro_batch_origin =
      (found.samples == most ? "all samples that the data has for a rank, " : "the largest that fits, ") +
      config::format_bytes(found.bytes) + " of " + config::format_bytes(budget.bytes) + " a rank (" + budget.origin +
      ")";
}

}  // namespace

std::int64_t hidden_size(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  const config::PluginChoice& choice = config.model.plugin;
  const std::unique_ptr<PluginContext> context =
      plugin_host::asking_context(registry.find(PluginKind::Model, choice.plugin), choice.options);
  const std::unique_ptr<Model> model = registry.create<Model>(choice.plugin, *context);
  if (!config.model.init.empty())
    model->configure(checkpoint::HuggingFaceFolder::open(config.model.init)->config_text());
  const LayerInfo first = model->describe(0, {1, config.model.seq_len, at::kFloat});
  if (first.outputs.empty() || first.outputs.front().extents.empty())
    throw UserError(choice.place, "model " + choice.plugin +
                                      " does not say its hidden size, which a value \"auto\" needs; give the value");
  return first.outputs.front().extents.back();
}

ResolvedRun resolve_run(std::vector<config::Node> layers, const config::World& world,
                        plugin_host::PluginRegistry& registry, const config::PluginSource& plugins, int local_ranks,
                        config::DataSection data) {
  const Budget budget = take_budget(layers);
  ResolvedRun run;
  config::DeepSpeedAnswers answers;
  answers.unanswered_micro_batch = "1";
  const auto resolve = [&] {
    std::vector<config::Node> own = layers;
    if (own.size() > 1 && config::is_deepspeed(own[1]))
      run.deepspeed = config::translate_deepspeed(own, plugins, answers);
    run.config = config::resolve(std::move(own), world, plugins, data);
  };
  resolve();
  if (run.deepspeed && run.deepspeed->asks_hidden_size) {
    answers.hidden_size = hidden_size(run.config, registry);
    resolve();
  }
  if (run.deepspeed && run.deepspeed->asks_micro_batch) {
    try {
      answer_micro_batch(answers, run.config, budget.bytes, registry, local_ranks);
    } catch (const UserError& error) {
      throw UserError(run.deepspeed->micro_batch_place, std::string("\"auto\" as the micro-batch: ") + error.what());
    }
    resolve();
  }
  if (run.deepspeed) config::say_derived(*run.deepspeed, run.config.listing);
  run.config.listing.push_back(budget.listed);
  return run;
}

}  // namespace strata::runtime
