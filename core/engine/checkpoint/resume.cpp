#include "checkpoint/resume.hpp"

#include <ATen/ops/full.h>
#include <c10/core/GradMode.h>
#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <filesystem>

#include "checkpoint/agreement.hpp"
#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/content.hpp"
#include "checkpoint/plugin_state.hpp"
#include "checkpoint/resume_rules.hpp"
#include "checkpoint/save_checkpoint.hpp"
#include "checkpoint/state_shard.hpp"
#include "group/numbers.hpp"
#include "plugins/plugin_call.hpp"

namespace strata::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t read_round_bytes = std::uint64_t{256} << 20;  // read between two meetings of the ranks

// Where `from` points: one checkpoint, or a folder of them.
struct Target {
  fs::path path;
  bool one = false;
};

Target target_of(const config::RunConfig& config, const std::string& from) {
  if (from == "latest") {
    if (config.checkpoint.path.empty())
      throw UserError(
          "--resume: checkpoint.path is empty, so there is no latest checkpoint; set it, or name a folder: --resume "
          "PATH");
    return {config.checkpoint.path, false};
  }
  const fs::path folder = resolve_latest(from);
  require_folder(folder, "--resume " + from);
  return {folder, CheckpointFolder(folder).steps().empty()};
}

// Rank 0's number, on all ranks.
std::int64_t from_rank_0(Group& world, at::Device device, std::int64_t number) {
  return group::reduce_numbers(world, device, {world.rank() == 0 ? number : 0}).front();
}

// Loads one checkpoint, in steps that the ranks take together.
class Loading {
 public:
  Loading(const config::RunConfig& config, step::Session& session, const stage::PluginSet& plugins, const RunData& data)
      : config_(config), session_(session), plugins_(plugins), data_(data), rank_(session.stage().place.rank) {}

  // Every file whole, and the checkpoint this run's. Changes nothing yet.
  Outcome examine(const fs::path& folder) {
    std::optional<Verification> verification;
    return work_in_rounds(world(), device(), [&] {
      if (!verification) {
        saved_ = TrainingCheckpoint::read(folder);
        verification.emplace(saved_, rank_, world().size());
      }
      return verification->advance(read_round_bytes);
    });
  }

  // Every rank has read the folder itself: on another host its path may denote another one.
  void check_same() const {
    const std::vector<std::int64_t> contents =
        group::gather_numbers(world(), device(), {static_cast<std::int64_t>(content_of(saved_))});
    const auto other = std::ranges::find_if(contents, [&](std::int64_t one) { return one != contents.front(); });
    if (other != contents.end())
      throw UserError("{}: rank {} reads another checkpoint here than rank 0; name a folder that all ranks share",
                      saved_.folder.string(), other - contents.begin());
  }

  void load() {
    const c10::NoGradGuard no_grad;
    std::optional<RangeSource> source;
    std::size_t entry = 0;
    std::vector<state::OptimizerState::Entry>& entries = session_.stage().updates.state().entries();
    work_in_rounds(world(), device(), [&] {
      if (!source) {
        check_settings(saved_, config_);
        check_data();
        check_model(saved_, session_.stage().layers.model());
        source.emplace(saved_.folder, saved_.files, saved_.parameters);
        check_optimizer_state(saved_, *source, session_.stage());
        load_plugins();
        load_pending();
      }
      for (std::uint64_t read = 0; entry < entries.size() && read < read_round_bytes; ++entry)
        read +=
            read_entry(*source, session_.stage().updates.state(), entries[entry], saved_.pending.has_value(), local());
      return entry < entries.size();
    }).check();
    session_.publish();
    if (local() == nullptr) return;
    entry = 0;
    work_in_rounds(world(), device(), [&] {
      for (std::uint64_t read = 0; entry < entries.size() && read < read_round_bytes; ++entry)
        read += read_master_of_group(*source, session_.stage().updates.state(), entries[entry], *local());
      return entry < entries.size();
    }).check();
    session_.publish_values();
  }

  Resumed result() const { return {saved_.folder.string(), saved_.step, saved_.updates, saved_.optimizer_updates}; }
  const TrainingCheckpoint& saved() const { return saved_; }

 private:
  Group& world() const { return session_.stage().groups.world(); }
  at::Device device() const { return session_.store().device(); }
  const stage::LocalTraining* local() const {
    return session_.stage().updates.local() ? &*session_.stage().updates.local() : nullptr;
  }

  void check_data() const {
    const std::string saved_over = format("{}: was saved over data of {} samples, and {} has ", saved_.folder.string(),
                                          saved_.data.samples, config_.data.path);
    const std::string remedy =
        "; a resumed run must keep its data. To train these weights on other data, export them (`strata checkpoint "
        "export`) and start a new run with model.init";
    if (saved_.data.samples != data_.samples) throw UserError(saved_over + std::to_string(data_.samples) + remedy);
    if (saved_.data.content && data_.content && saved_.data.content != data_.content)
      throw UserError("{}the same number of other samples{}", saved_over, remedy);
  }

  void load_pending() const {
    stage::Stage& stage = session_.stage();
    const auto [learning_rate, updates, gradient_factor, momentum] = saved_.pending.value_or(PendingUpdate());
    const double apply = saved_.pending ? 1.0 : 0.0;
    stage.updates.scalars = {learning_rate,
                             updates,
                             at::full({}, gradient_factor, stage.updates.scalar_options()),
                             at::full({}, apply, stage.updates.scalar_options()),
                             momentum,
                             static_cast<std::uint64_t>(config_.train.seed)};
  }

  void load_plugins() const {
    const bool same_layout = saved_.layout == saved_layout(config_);
    const std::optional<PluginFile> own = plugin_file(same_layout ? rank_ : 0);
    const bool is_split = saved_.file(plugins_file_name) != nullptr;  // else of format 1
    std::optional<PluginFile> shared;
    if (is_split) shared.emplace(saved_.folder / plugins_file_name);
    if (!is_split && !same_layout) check_equal(*own);
    for (const auto& [slot, named] : plugins_.all()) {
      const SavedPlugin* const of_all = shared ? shared->find(slot, named.name) : nullptr;
      const SavedPlugin* const of_rank = own ? own->find(slot, named.name) : nullptr;
      if (of_all == nullptr && of_rank == nullptr) continue;  // newly chosen: differing_settings() reports it

      if (is_split && !same_layout && of_all == nullptr) refuse_other_layout(named.name);
      SavedPlugin values = of_all != nullptr ? *of_all : *of_rank;
      if (!same_layout) values = values.of_all_ranks();
      if (values.state_version > named->state_version())
        throw UserError(
            "{}: holds state of version {} of {}, and the plugin of this name reads up to version {}; use the plugin "
            "that saved it, or a newer one",
            saved_.folder.string(), values.state_version, named.name, named->state_version());
      const PluginStateReader reader(saved_.folder.string(), values,
                                     {shared ? &*shared : nullptr, same_layout && own ? &*own : nullptr});
      load_plugin(named, values.state_version, reader);
    }
  }

  void load_plugin(const stage::NamedPlugin<Plugin>& named, int version, PluginStateReader reader) const {
    plugins::plugin_call(named.name, "load()", rank_, [&] { named->load(reader, version); });
  }

  // A rank's own values; nothing where it has none.
  std::optional<PluginFile> plugin_file(std::int64_t rank) const {
    const std::int64_t ranks = saved_.layout.world_size;
    for (const std::string& name : {rank_file_name(rank, ranks), former_rank_file_name(rank, ranks)})
      if (saved_.file(name) != nullptr) return std::optional<PluginFile>(std::in_place, saved_.folder / name);
    return std::nullopt;
  }

  // Of format 1, on other ranks: only what all ranks had alike can be taken over. Each rank looks at a share of the
  // files.
  void check_equal(const PluginFile& first) const {
    for (std::int64_t rank = 1 + rank_; rank < saved_.layout.world_size; rank += world().size()) {
      const std::optional<PluginFile> theirs = plugin_file(rank);
      for (const SavedPlugin& plugin : first.plugins()) {
        const SavedPlugin* const other = theirs ? theirs->find(plugin.slot, plugin.plugin) : nullptr;
        if (other == nullptr || !(other->of_all_ranks() == plugin.of_all_ranks())) refuse_other_layout(plugin.plugin);
      }
    }
  }

  [[noreturn]] void refuse_other_layout(const std::string& plugin) const {
    throw UserError(
        "{}: {} saved other values on some ranks than on rank 0; resume with the ranks and stages of the run that "
        "saved it: {} ranks, parallel.pipeline={}",
        saved_.folder.string(), plugin, saved_.layout.world_size, saved_.layout.mesh.size(Axis::Pipeline));
  }

  const config::RunConfig& config_;
  step::Session& session_;
  const stage::PluginSet& plugins_;
  RunData data_;
  std::int64_t rank_;
  TrainingCheckpoint saved_;
};

}  // namespace

std::string earlier_checkpoints(const config::RunConfig& config, const std::string& resume) {
  if (config.checkpoint.path.empty()) return "";
  const std::vector<std::int64_t> steps = CheckpointFolder(config.checkpoint.path).steps();
  if (steps.empty()) return "";
  return format(
      "checkpoint.path: {} holds checkpoints of an earlier run, up to step-{}; continue with {}, or give another "
      "folder",
      config.checkpoint.path, steps.back(), resume);
}

void check_start(const config::RunConfig& config, const std::optional<std::string>& from) {
  if (!from) {
    const std::string earlier = earlier_checkpoints(config, "--resume");
    if (!earlier.empty()) throw UserError(earlier);
    return;
  }
  const Target target = target_of(config, *from);
  const CheckpointFolder folder(target.path);
  const std::optional<std::int64_t> step = target.one ? std::nullopt : folder.latest();
  if (!target.one && !step) return;
  TrainingCheckpoint saved;
  try {
    saved = TrainingCheckpoint::read(target.one ? target.path : folder.of_step(*step));
  } catch (const DamagedCheckpoint&) {
    if (target.one) throw;
    return;  // resume() looks for an earlier one
  }
  check_settings(saved, config);
}

std::optional<Resumed> resume(const config::RunConfig& config, const std::string& from, step::Session& session,
                              const stage::PluginSet& plugins, const RunData& data) {
  const Target target = target_of(config, from);
  const CheckpointFolder folder(target.path);
  const bool leader = session.stage().place.rank == 0;
  Group& world = session.stage().groups.world();
  Loading loading(config, session, plugins, data);
  if (target.one) {
    loading.examine(target.path).check();
  } else {
    const at::Device device = session.store().device();
    std::int64_t step = from_rank_0(world, device, leader ? folder.latest().value_or(-1) : 0);
    if (step < 0) {
      if (leader) spdlog::warn("{}: has no checkpoint yet; the run starts at its first step", target.path.string());
      return std::nullopt;
    }
    for (;;) {
      const Outcome outcome = loading.examine(folder.of_step(step));
      if (outcome.failure != Failure::Damaged) {
        outcome.check();
        break;
      }
      const std::int64_t before = from_rank_0(world, device, leader ? folder.finite_below(step).value_or(-1) : 0);
      if (before < 0) throw UserError("{}; there is no earlier checkpoint to resume from", outcome.text);
      if (leader)
        spdlog::warn("{}; resuming from {}, the one before it", outcome.text, folder.of_step(before).string());
      step = before;
    }
  }
  loading.check_same();
  if (!loading.saved().is_finite()) {
    const std::string found = loading.saved().folder.string() + ": " + loading.saved().not_finite + " is not finite";
    if (!target.one)
      throw UserError(
          "{}, and there is no earlier checkpoint to resume from; start anew with a lower learning rate, or resume "
          "from this one by name: --resume {}",
          found, loading.saved().folder.string());
    if (leader) spdlog::warn("{}; resuming from it, because it was given by name", found);
  }
  const std::string differing = differing_settings(loading.saved(), config, session.learning_rate());
  loading.load();
  if (leader && !differing.empty())
    spdlog::warn("{}: this run differs from the saved one: {}", loading.result().folder, differing);
  return loading.result();
}

}  // namespace strata::checkpoint
