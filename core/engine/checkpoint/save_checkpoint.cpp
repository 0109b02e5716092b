#include "checkpoint/save_checkpoint.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "checkpoint/agreement.hpp"
#include "checkpoint/plugin_files.hpp"
#include "checkpoint/range_index.hpp"
#include "checkpoint/state_shard.hpp"
#include "config/listing.hpp"
#include "group/numbers.hpp"

namespace strata::checkpoint {

namespace {

constexpr std::int64_t written_round_bytes = std::int64_t{256} << 20;  // written between two meetings of the ranks

// True if a folder that another host has just made is there. A network file system may show an older list of names for
// a while; to open the folder above makes it ask its server.
bool is_seen(const std::filesystem::path& folder) {
  for (int attempt = 0; attempt < 15; ++attempt) {
    if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::error_code ignored;
    const std::filesystem::directory_iterator above(folder.parent_path(), ignored);
    if (std::filesystem::is_directory(folder, ignored)) return true;
  }
  return false;
}

// The facts about one rank's files that others need, and the lengths of its messages to rank 0.
struct Written {
  std::uint64_t shard_bytes, shard_checksum;
  std::uint64_t own_bytes, own_checksum;  // of plugins' own values; 0: no file
  std::int64_t header_bytes, reason_bytes;
};

// Every rank's header of its shard on rank 0, which need not look at files that other hosts may not show yet, and the
// first rank's reason why its values are not finite.
struct Gathered {
  std::vector<std::string> headers;
  std::string not_finite;
};

Gathered gather_headers(Group& world, at::Device device, const std::vector<Written>& all, const StateShard& shard) {
  const at::TensorOptions bytes = at::TensorOptions().dtype(at::kByte);
  if (world.rank() > 0) {
    std::string message = shard.header() + shard.not_finite();
    const at::Tensor values = at::from_blob(message.data(), {std::ssize(message)}, bytes).clone().to(device);
    world.send(values, 0).wait();
    return {};
  }
  Gathered gathered;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Written& theirs = all[static_cast<std::size_t>(rank)];
    std::string message = shard.header() + shard.not_finite();
    if (rank > 0) {
      const at::Tensor values = at::empty({theirs.header_bytes + theirs.reason_bytes}, bytes.device(device));
      world.receive(values, rank).wait();
      const at::Tensor host = values.cpu();
      message.assign(static_cast<const char*>(host.const_data_ptr()), static_cast<std::size_t>(host.numel()));
    }
    gathered.headers.push_back(message.substr(0, static_cast<std::size_t>(theirs.header_bytes)));
    if (gathered.not_finite.empty())
      gathered.not_finite = message.substr(static_cast<std::size_t>(theirs.header_bytes));
  }
  return gathered;
}

}  // namespace

std::vector<SavedParameter> saved_parameters(const std::vector<LayerInfo>& layers) {
  std::vector<SavedParameter> parameters;
  std::set<std::string> ties;
  for (const LayerInfo& layer : layers)
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.tie.empty() || ties.insert(parameter.tie).second)
        parameters.push_back({parameter.name, parameter.shape, {}, parameter.split});
  return parameters;
}

SavedLayout saved_layout(const config::RunConfig& config) {
  return {config.world_size, config.parallel.mesh};
}

std::vector<std::pair<std::string, config::OptionValue>> saved_settings(const config::RunConfig& config) {
  std::map<std::string, std::string> names;
  for (const config::PluginChoice* const choice : config.plugins()) names[choice->slot + ".plugin"] = choice->name;
  std::vector<std::pair<std::string, config::OptionValue>> settings;
  for (const config::Resolved& value : config::listing(config)) {
    if (value.path == "plugin_path") continue;
    const auto name = names.find(value.path);
    settings.emplace_back(value.path, name == names.end() ? value.value : name->second);
  }
  return settings;
}

std::optional<PendingUpdate> CheckpointSaver::pending() const {
  const StepScalars& scalars = session_.stage().updates.scalars;
  if (config_.step_policy != config::StepPolicy::Delayed || scalars.apply.item<float>() == 0.0F) return {};
  return PendingUpdate{scalars.learning_rate, scalars.updates, scalars.gradient_factor.item<float>(), scalars.momentum};
}

std::string CheckpointSaver::save(const Progress& progress) {
  const std::string final = folder_.of_step(progress.steps).string();
  if (saved_step_ == progress.steps) return final;
  mark_if_disproven();
  share_owner();
  try {
    write(progress);
  } catch (...) {
    if (session_.stage().place.rank == 0) folder_.drop(progress.steps);
    throw;
  }
  saved_step_ = progress.steps;
  return final;
}

// No step has the number 0.
void CheckpointSaver::try_saving() {
  const stage::Stage& stage = session_.stage();
  share_owner();
  const std::filesystem::path folder = folder_.temporary_of_step(0);
  const auto once = [&](const std::function<void()>& work) {
    work_in_rounds(stage.groups.world(), session_.store().device(), [&] { return work(), false; }).check();
  };
  try {
    once([&] {
      if (stage.place.rank == 0) folder_.begin(0);
    });
    once([&] {
      check_shared(folder);
      const data::OutputFile file((folder / shard_name(stage.place.rank, stage.groups.world().size())).string());
    });
  } catch (...) {
    if (stage.place.rank == 0) folder_.drop(0);
    throw;
  }
  if (stage.place.rank == 0) folder_.drop(0);
}

void CheckpointSaver::check_shared(const std::filesystem::path& folder) const {
  if (!is_seen(folder))
    throw UserError(
        "{}: rank {} does not see this folder, which rank 0 created; checkpoint.path must be a folder that all ranks "
        "share",
        folder.string(), session_.stage().place.rank);
}

void CheckpointSaver::share_owner() {
  if (std::exchange(has_owner_, true)) return;
  const bool leader = session_.stage().place.rank == 0;
  const Owner mine = leader ? folder_.owner() : Owner{};
  folder_.set_owner(group::gather_values(session_.stage().groups.world(), session_.store().device(), mine).front());
}

void CheckpointSaver::take_loss(double loss, const std::string& what) {
  if (!unproven_) return;
  if (!std::isfinite(loss)) {
    if (disproven_by_.empty()) disproven_by_ = what;
    return;
  }
  unproven_ = false;
  disproven_by_.clear();
  if (config_.checkpoint.keep != 1) return;  // with a larger `keep`, save() has removed the older ones
  work_in_rounds(session_.stage().groups.world(), session_.store().device(), [&] {
    if (session_.stage().place.rank == 0) folder_.retain(saved_step_, 1, 0);
    return false;
  }).check();
}

void CheckpointSaver::mark_if_disproven() noexcept {
  if (!unproven_ || disproven_by_.empty()) return;
  unproven_ = false;
  const std::string what = std::exchange(disproven_by_, "");
  if (session_.stage().place.rank != 0) return;
  const std::string folder = folder_.of_step(saved_step_).string();
  try {
    folder_.mark_not_finite(saved_step_, what);
    spdlog::warn(
        "{}: {} was not finite with the weights saved there; the checkpoint is marked, and --resume continues from the "
        "latest one with finite values",
        folder, what);
  } catch (const std::exception& error) {
    spdlog::warn("{}: {} was not finite with the weights saved there, and the checkpoint cannot be marked: {}", folder,
                 what, error.what());
  }
}

// The ranks meet after each part: the folder is there; the files are written; they are read back; the whole has its
// name.
void CheckpointSaver::write(const Progress& progress) {
  const c10::NoGradGuard no_grad;
  const stage::Stage& stage = session_.stage();
  Group& world = stage.groups.world();
  const at::Device device = session_.store().device();
  const std::filesystem::path folder = folder_.temporary_of_step(progress.steps);
  const auto once = [&](const std::function<void()>& work) {
    work_in_rounds(world, device, [&] { return work(), false; }).check();
  };

  once([&] {
    if (stage.place.rank == 0) folder_.begin(progress.steps);
  });
  std::vector<MeasuredState> states;
  once([&] {
    check_shared(folder);
    states = measure_plugins(plugins_, stage.place.rank);
  });
  const std::vector<bool> alike = alike_on_all_ranks(states, world, device);
  std::optional<PluginFiles> plugins;
  std::optional<StateShard> shard;
  work_in_rounds(world, device, [&] {
    if (!plugins) plugins.emplace(folder, plugins_, stage, states, alike);
    if (!shard) {
      if (!plugins->advance())
        shard.emplace(folder, shard_name(stage.place.rank, world.size()), stage.updates.state(), pending().has_value(),
                      stage.updates.local() ? &*stage.updates.local() : nullptr, progress.steps);
      return true;
    }
    return shard->advance(written_round_bytes);
  }).check();

  const SavedFile mine = shard->saved(), own = plugins->own();
  const std::vector<Written> all =
      group::gather_values(world, device,
                           Written{mine.bytes, mine.checksum, own.bytes, own.checksum, std::ssize(shard->header()),
                                   std::ssize(shard->not_finite())});
  const Gathered gathered = gather_headers(world, device, all, *shard);
  TrainingCheckpoint saved;
  once([&] {
    if (stage.place.rank > 0) return;
    saved = describe(progress);
    if (saved.is_finite()) saved.not_finite = gathered.not_finite;
    std::vector<SafetensorsFile> shards;
    for (int rank = 0; rank < world.size(); ++rank) {
      const Written& theirs = all[static_cast<std::size_t>(rank)];
      const std::string name = shard_name(rank, world.size());
      saved.files.push_back({name, theirs.shard_bytes, theirs.shard_checksum});
      shards.emplace_back((folder / name).string(), gathered.headers[static_cast<std::size_t>(rank)],
                          theirs.shard_bytes);
    }
    for (int rank = 0; rank < world.size(); ++rank)
      if (const Written& theirs = all[static_cast<std::size_t>(rank)]; theirs.own_bytes > 0)
        saved.files.push_back({rank_file_name(rank, world.size()), theirs.own_bytes, theirs.own_checksum});
    saved.files.push_back(plugins->shared());
    try {  // every element once: a partitioner that counts some twice or never is found out while an earlier checkpoint
           // is there
      saved.files.push_back(RangeIndex(folder, shards, saved.parameters).save());
    } catch (const DamagedCheckpoint& error) {
      throw Bug("{} does not own every element once: {}", stage.plugins.partitioner.name, error.what());
    }
  });

  std::vector<SavedFile> written{mine};
  if (own.bytes > 0) written.push_back(own);
  if (stage.place.rank == 0) written.insert(written.end(), saved.files.end() - 2, saved.files.end());
  Verification verification(folder, std::move(written));
  work_in_rounds(world, device, [&] {
    try {
      return verification.advance(written_round_bytes);
    } catch (const DamagedCheckpoint& error) {
      throw EnvironmentError("{}: the disk returned other data than was just written; earlier checkpoints are kept",
                             error.what());
    }
  }).check();
  once([&] {
    if (stage.place.rank == 0) finish(saved);
  });
  // All ranks alike: whether the next loss matters.
  unproven_ = group::reduce_numbers(world, device, {stage.place.rank == 0 && saved.is_finite() ? 1 : 0}).front() > 0;
  disproven_by_.clear();
}

TrainingCheckpoint CheckpointSaver::describe(const Progress& progress) const {
  TrainingCheckpoint saved;
  saved.step = progress.steps;
  saved.updates = progress.updates;
  saved.optimizer_updates = progress.optimizer_updates;
  saved.not_finite = progress.not_finite;
  saved.samples = progress.steps * config_.train.global_batch;
  saved.data = content_.data;
  saved.pending = pending();
  saved.layout = saved_layout(config_);
  saved.model_config = content_.model_config;
  for (const auto& [path, value] : saved_settings(config_)) saved.config.emplace_back(path, config::to_text(value));
  saved.parameters = saved_parameters(session_.stage().layers.model());
  const Optimizer& optimizer = *session_.stage().plugins.optimizer;
  std::map<std::string, const ParameterInfo*> trained;
  for (const LayerInfo& layer : session_.stage().layers.model())
    for (const ParameterInfo& parameter : layer.parameters)
      if (parameter.trainable) trained.emplace(parameter.name, &parameter);
  for (SavedParameter& parameter : saved.parameters) {
    const auto info = trained.find(parameter.name);
    if (info == trained.end()) continue;
    for (const StateTensor& state : optimizer.state(PieceInfo::whole(*info->second)))
      for (const std::string& name : saved_names(state.name, session_.stage().updates.local())) {
        if (state.whole > 0) parameter.whole_states[name] = state.whole;
        if (state.block > 1) parameter.block_states[name] = state.block;
      }
  }
  return saved;
}

// On rank 0.
void CheckpointSaver::finish(const TrainingCheckpoint& saved) {
  const std::filesystem::path folder = folder_.temporary_of_step(saved.step);
  write_saved(folder, checkpoint_file_name, saved.text());
  data::forget_cached((folder / checkpoint_file_name).string());
  try {
    TrainingCheckpoint::read(folder);
  } catch (const DamagedCheckpoint& error) {
    throw EnvironmentError("{}: the disk returned other data than was just written; earlier checkpoints are kept",
                           error.what());
  }
  folder_.finish(saved.step);
  const std::int64_t keep = config_.checkpoint.keep;
  if (saved.is_finite()) {
    folder_.point_latest_to(saved.step);
    folder_.retain(saved.step, keep, 1);
    return;
  }
  folder_.retain(saved.step, keep, std::numeric_limits<std::int64_t>::max());  // all that are finite
  const std::optional<std::int64_t> good = folder_.finite_below(saved.step);
  spdlog::warn("{}: {} is not finite; {}", folder_.of_step(saved.step).string(), saved.not_finite,
               good ? "earlier checkpoints are kept, and --resume continues from " + folder_.of_step(*good).string()
                    : "there is no earlier checkpoint");
}

}  // namespace strata::checkpoint
