#include "checkpoint/save_checkpoint.hpp"

#include <c10/core/GradMode.h>
#include <strata/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/agreement.hpp"
#include "checkpoint/ranges.hpp"
#include "checkpoint/state_shard.hpp"
#include "group/numbers.hpp"
#include "plugin_host/plugin_call.hpp"

namespace strata::runtime {

namespace {

constexpr std::int64_t written_round_bytes = std::int64_t{256} << 20;  // written between two meetings of the ranks

// Every rank's two files, known to all.
std::vector<checkpoint::SavedFile> gather_files(Group& world, at::Device device, const checkpoint::SavedFile& shard,
                                                const checkpoint::SavedFile& rank_file) {
  struct Numbers {
    std::uint64_t shard_bytes, shard_checksum, rank_bytes, rank_checksum;
  };
  const std::vector<Numbers> all =
      gather_values(world, device, Numbers{shard.bytes, shard.checksum, rank_file.bytes, rank_file.checksum});
  std::vector<checkpoint::SavedFile> files;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Numbers& numbers = all[static_cast<std::size_t>(rank)];
    files.push_back({checkpoint::shard_name(rank, world.size()), numbers.shard_bytes, numbers.shard_checksum});
    files.push_back({checkpoint::rank_file_name(rank, world.size()), numbers.rank_bytes, numbers.rank_checksum});
  }
  return files;
}

}  // namespace

std::vector<checkpoint::SavedParameter> saved_parameters(const std::vector<LayerInfo>& layers) {
  std::vector<checkpoint::SavedParameter> parameters;
  std::set<std::string> ties;
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.tie.empty() || ties.insert(parameter.tie).second)
        parameters.push_back({parameter.name, parameter.shape, {}, parameter.split});
  return parameters;
}

checkpoint::SavedLayout saved_layout(const config::RunConfig& config) {
  return {config.world_size, config.parallel.pipeline, config.parallel.data, config.parallel.tensor};
}

std::vector<std::pair<std::string, config::OptionValue>> saved_settings(const config::RunConfig& config) {
  std::map<std::string, std::string> names;
  for (const config::PluginChoice* const choice : config.plugins()) names[choice->slot + ".plugin"] = choice->name;
  std::vector<std::pair<std::string, config::OptionValue>> settings;
  for (const config::Resolved& value : config.listing) {
    if (value.path == "plugin_path") continue;
    const auto name = names.find(value.path);
    settings.emplace_back(value.path, name == names.end() ? value.value : name->second);
  }
  return settings;
}

std::vector<checkpoint::SavedPlugin> CheckpointSaver::plugin_states() const {
  std::vector<checkpoint::SavedPlugin> states;
  for (const auto& [slot, named] : plugins_.all()) {
    checkpoint::PluginStateWriter writer(named.name);
    plugin_call(named.name, "save()", session_.stage().rank, [&, &named = named] { named->save(writer); });
    states.push_back({slot, named.name, named->state_version(), writer.values()});
  }
  return states;
}

std::optional<checkpoint::PendingUpdate> CheckpointSaver::pending() const {
  const StepScalars& scalars = session_.stage().scalars;
  if (config_.step_policy != config::StepPolicy::Delayed || scalars.apply.item<float>() == 0.0F) return {};
  return checkpoint::PendingUpdate{scalars.learning_rate, scalars.updates, scalars.gradient_factor.item<float>(),
                                   scalars.momentum};
}

std::string CheckpointSaver::save(std::int64_t step, std::int64_t updates, std::int64_t optimizer_updates) {
  const std::string final = folder_.of_step(step).string();
  if (saved_step_ == step) return final;
  try {
    write(step, updates, optimizer_updates);
  } catch (...) {
    if (session_.stage().rank == 0) folder_.drop(step);
    throw;
  }
  saved_step_ = step;
  return final;
}

// No step has the number 0.
void CheckpointSaver::try_saving() {
  const StageState& stage = session_.stage();
  const std::filesystem::path folder = folder_.temporary_of_step(0);
  const auto once = [&](const std::function<void()>& work) {
    work_in_rounds(*stage.world, session_.store().device(), [&] { return work(), false; }).check();
  };
  try {
    once([&] {
      if (stage.rank == 0) folder_.begin(0);
    });
    once([&] {
      check_shared(folder);
      const data::OutputFile file((folder / checkpoint::shard_name(stage.rank, stage.world->size())).string());
    });
  } catch (...) {
    if (stage.rank == 0) folder_.drop(0);
    throw;
  }
  if (stage.rank == 0) folder_.drop(0);
}

void CheckpointSaver::check_shared(const std::filesystem::path& folder) const {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw UserError(folder.string() + ": rank " + std::to_string(session_.stage().rank) +
                    " does not see this folder, which rank 0 made; checkpoint.path must name one that all ranks share");
}

// The ranks meet after each part: the folder is there; the shards are written; the whole has its name.
void CheckpointSaver::write(std::int64_t step, std::int64_t updates, std::int64_t optimizer_updates) {
  const c10::NoGradGuard no_grad;
  const StageState& stage = session_.stage();
  Group& world = *stage.world;
  const at::Device device = session_.store().device();
  const std::filesystem::path folder = folder_.temporary_of_step(step);
  const auto once = [&](const std::function<void()>& work) {
    work_in_rounds(world, device, [&] { return work(), false; }).check();
  };

  once([&] {
    if (stage.rank == 0) folder_.begin(step);
  });
  std::optional<StateShard> shard;
  checkpoint::SavedFile rank_file;
  work_in_rounds(world, device, [&] {
    if (!shard) {
      check_shared(folder);
      rank_file = checkpoint::write_saved(folder, checkpoint::rank_file_name(stage.rank, world.size()),
                                          checkpoint::format_rank_file(plugin_states()));
      shard.emplace(folder, checkpoint::shard_name(stage.rank, world.size()), *stage.optimizer_state,
                    pending().has_value(), stage.local ? &*stage.local : nullptr, step);
    }
    return shard->advance(written_round_bytes);
  }).check();
  std::vector<checkpoint::SavedFile> files = gather_files(world, device, shard->saved(), rank_file);
  once([&] {
    if (stage.rank == 0) finish(step, updates, optimizer_updates, std::move(files));
  });
}

void CheckpointSaver::finish(std::int64_t step, std::int64_t updates, std::int64_t optimizer_updates,
                             std::vector<checkpoint::SavedFile> files) {
  checkpoint::TrainingCheckpoint saved;
  saved.step = step;
  saved.updates = updates;
  saved.optimizer_updates = optimizer_updates;
  saved.samples = step * config_.train.global_batch;
  saved.data = content_.data;
  saved.pending = pending();
  saved.layout = saved_layout(config_);
  saved.model_config = content_.model_config;
  for (const auto& [path, value] : saved_settings(config_)) saved.config.emplace_back(path, config::to_text(value));
  saved.parameters = saved_parameters(session_.stage().model_layers);
  const Optimizer& optimizer = *session_.stage().optimizer;
  std::map<std::string, const ParameterInfo*> trained;
  for (const LayerInfo& layer : session_.stage().model_layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.trainable) trained.emplace(parameter.name, &parameter);
  for (checkpoint::SavedParameter& parameter : saved.parameters) {
    const auto info = trained.find(parameter.name);
    if (info == trained.end()) continue;
    for (const StateTensor& state : optimizer.state(PieceInfo::whole(*info->second)))
      for (const std::string& name : saved_names(state.name, session_.stage().local)) {
        if (state.whole > 0) parameter.whole_states[name] = state.whole;
        if (state.block > 1) parameter.block_states[name] = state.block;
      }
  }
  saved.files = std::move(files);
  const std::filesystem::path folder = folder_.temporary_of_step(step);
  try {  // every element once: a partitioner that counts some twice or never is found out while an earlier checkpoint
         // is there
    const checkpoint::RangeSource whole(folder, saved.files, saved.parameters);
  } catch (const checkpoint::DamagedCheckpoint& error) {
    throw Bug(session_.stage().partitioner.name + " does not own every element once: " + error.what());
  }
  checkpoint::write_saved(folder, checkpoint::checkpoint_file_name, saved.text());
  folder_.finish(step, config_.checkpoint.keep);
}

}  // namespace strata::runtime
