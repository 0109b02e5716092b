#include "runtime/dry_run.hpp"

#include <ATen/ops/empty.h>

#include <set>

#include "checkpoint/hugging_face.hpp"
#include "runtime/counting_allocator.hpp"
#include "runtime/run.hpp"
#include "runtime/session.hpp"

namespace strata::runtime {

namespace {

int config_ranks(const config::RunConfig& config) { return static_cast<int>(config.world_size); }

std::string model_config(const config::RunConfig& config) {
  return config.model.init.empty() ? "" : checkpoint::HuggingFaceFolder::open(config.model.init)->config_text();
}

// A rank on meta, among ranks that are not there.
struct DryRank {
  DryRank(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank, const std::string& model_config, Purpose purpose)
      : plugins(config, registry, rank, /*with_communicator=*/false),
        groups(rank),
        session(config, plugins, groups, {rank, config_ranks(config), 0}, model_config, /*dry_run=*/true, purpose) {}

  PluginSet plugins;
  CountingGroups groups;
  Session session;
};

}  // namespace

void check_run(const config::RunConfig& config, plugin_host::PluginRegistry& registry) {
  const DryRank rank(config, registry, 0, model_config(config), Purpose::Training);
}

void check_evaluation(const config::RunConfig& config, plugin_host::PluginRegistry& registry, const std::string& model_config) {
  const DryRank rank(config, registry, 0, model_config, Purpose::Evaluation);
}

DryRun dry_run(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank) {
  CountingAllocator device_tensors;
  DryRank dry_rank(config, registry, rank, model_config(config), Purpose::Training);
  Session& session = dry_rank.session;

  StepInput input;
  input.seed = static_cast<std::uint64_t>(config.train.seed);
  input.clip = config.train.clip;
  input.learning_rate = config.learning_rate.base;
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(at::kMeta);
  for (std::int64_t micro_batch = 0; micro_batch < config.train.accumulation; ++micro_batch)
    input.batches.push_back({at::empty({config.train.micro_batch, config.model.seq_len}, integers),
                             at::empty({config.train.micro_batch, config.model.seq_len}, integers), 0});
  input.valid_tokens = config.train.global_batch * config.model.seq_len;

  const auto validate = [&] {
    if (!config.validation.data.path.empty()) session.evaluate(input.batches, at::empty({1}, integers.dtype(at::kDouble)));
  };
  DryRun result;
  // A run agrees on the number of tokens before each step, and whether to stop.
  session.stage().world->all_reduce(at::empty({Run::numbers_counted}, integers), ReduceOperation::Sum).wait();
  session.step(input);
  for (const auto& [name, group] : session.groups()) result.traffic += group->traffic();
  validate();
  session.store().reset_peaks();
  device_tensors.reset_peak();
  session.step(input);
  validate();
  result.ledger = session.store().ledger();
  result.peak_total = device_tensors.peak();
  result.program = session.program();
  std::set<std::string> ties;
  for (const LayerInfo& layer : session.stage().model_layers) {
    result.forward_flops += layer.forward_flops;
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.tie.empty() || ties.insert(parameter.tie).second) {
        result.parameters += parameter.elements();
        if (parameter.trainable) result.trainable += parameter.elements();
      }
  }
  return result;
}

}  // namespace strata::runtime
