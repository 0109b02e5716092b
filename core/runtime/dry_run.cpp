#include "runtime/dry_run.hpp"

#include <ATen/ops/empty.h>

#include <set>

#include "checkpoint/hugging_face.hpp"
#include "runtime/session.hpp"

namespace strata::runtime {

DryRun dry_run(const config::RunConfig& config, plugin_host::PluginRegistry& registry, int rank) {
  PluginSet plugins(config, registry, rank, /*with_communicator=*/false);
  CountingGroups groups(rank);
  const std::string model_config = config.model.init.empty() ? "" : checkpoint::HuggingFaceFolder::open(config.model.init)->config_text();
  Session session(config, plugins, groups, rank, model_config, /*dry_run=*/true);
  session.store().reset_peaks();

  StepInput input;
  input.seed = static_cast<std::uint64_t>(config.train.seed);
  input.clip = config.train.clip;
  input.learning_rate = config.learning_rate.base;
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(at::kMeta);
  for (std::int64_t micro_batch = 0; micro_batch < config.train.accumulation; ++micro_batch)
    input.batches.push_back({at::empty({config.train.micro_batch, config.model.seq_len}, integers),
                             at::empty({config.train.micro_batch, config.model.seq_len}, integers), 0});
  input.valid_tokens = config.train.global_batch * config.model.seq_len;
  session.step(input);

  DryRun result;
  result.ledger = session.store().ledger();
  result.program = session.program();
  for (const auto& [name, group] : session.groups()) result.traffic += group->traffic();
  std::set<std::string> ties;
  for (const LayerInfo& layer : session.stage().model_layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.tie.empty() || ties.insert(parameter.tie).second) result.parameters += parameter.elements();
  return result;
}

}  // namespace strata::runtime
