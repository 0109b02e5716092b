#include "plan/choose_offload.hpp"

#include <spdlog/spdlog.h>
#include <strata/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "plan/dry_run.hpp"
#include "plan/memory_budget.hpp"
#include "plan/placement.hpp"
#include "plan/rehearsal.hpp"
#include "plugins/engine_plugins.hpp"
#include "text/formatted.hpp"
#include "text/size.hpp"

namespace strata::plan {

namespace {

constexpr std::int64_t impossible = std::numeric_limits<std::int64_t>::max();  // nanoseconds, or bytes
// The divisors of offload.read_ahead and offload.update_elements, larger for less memory.
constexpr std::array<int, 4> staging_divisors{1, 4, 16, 64};

// The computations of a step, in order: layer and micro-batch, negative for a backward. Nothing where the order has
// more than whole passes, or adds up gradients in another order than that of micro-batches.
std::optional<std::vector<std::pair<int, int>>> passes_of(const program::Program& program) {
  std::vector<std::pair<int, int>> passes;
  std::map<int, int> next;  // by layer, the micro-batch whose backward follows
  for (const program::Instruction& instruction : program) {
    if (!program::is_compute(instruction.op)) continue;
    if (instruction.op != program::Op::Forward && instruction.op != program::Op::Backward) return {};
    if (instruction.version != 0) return {};
    const bool backward = instruction.op == program::Op::Backward;
    if (backward && next[instruction.layer]++ != instruction.micro_batch) return {};
    passes.emplace_back(backward ? -1 - instruction.layer : instruction.layer, instruction.micro_batch);
  }
  return passes;
}

config::PluginChoice by_default(const std::string& slot, const std::string& kind, const std::string& name,
                                const config::PluginSource& plugins) {
  config::PluginChoice choice{slot, kind, name, name, {}, {}};
  const config::PluginSchema schema = plugins.find(kind, name).value();
  for (const OptionSpec& option : schema.options)
    choice.options.set(option.name, parse_option(option, option.default_text));
  return choice;
}

class Search {
 public:
  Search(const resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
         const stage::MakeGroups& make_groups)
      : run_(run), config_(run.config), registry_(*run.registry), place_(place), choices_(choices_of(run.config)) {
    const std::unique_ptr<PluginContext> context =
        plugins::asking_context(registry_.find(PluginKind::Device, config_.device.plugin), config_.device.options);
    on_host_ = at::Device(registry_.create<Device>(config_.device.plugin, *context)->type()).is_cpu();
    choices_.whole_optimizer = !on_host_;
    // The host then updates the parameters, which it cannot address on a disk.
    const config::OffloadConfig& offload = config_.offload;
    if (!on_host_ && offload.optimizer && offload.host && offload.optimizer->plugin == offload.host->plugin)
      choices_.homes_of_parameters = 1;
    const auto& partitioner = registry_.find(PluginKind::Partitioner, config_.partitioner.plugin).manifest.capabilities;
    if (std::ranges::find(partitioner, Capability::ReleasesParameters) == partitioner.end())
      choices_.open[static_cast<std::size_t>(StateClass::Parameters)] = false;
    if (config_.train.accumulation > 1 && config_.parallel.size(Axis::Pipeline) == 1) add_schedulers();
    budget_ = memory_budget(config_, config_.memory_budget, registry_, local_ranks);
    rehearse(make_groups);
    budget_.bytes = rehearsal_->least({budget_.bytes}).front();
  }

  OffloadChoice run() {
    for (const int divisor : staging_divisors) {
      std::optional<Candidate> found = fastest_that_fits(coarse(choices_, divisor));
      if (!found) continue;
      if (std::optional<Candidate> better = fastest_that_fits(finer(choices_, found->placement))) found = better;
      return concluded(*found);
    }
    refuse_all(needed(away_));
  }

 private:
  struct Candidate {
    MemoryPlacement placement;
    std::int64_t nanoseconds = impossible;
    std::int64_t device_bytes = 0;
  };
  struct Needed {
    std::int64_t device = impossible;
    std::int64_t all = impossible;
  };

  config::RunConfig placed(const MemoryPlacement& placement) const {
    return plan::placed(config_, choices_, placement);
  }

  // The orders of the other schedulers that compute the same in another order.
  void add_schedulers() {
    if (std::ranges::find(config_.offload.given, "scheduler.plugin") != config_.offload.given.end()) return;
    const plugins::EnginePlugins plugins(run_.registry);
    MemoryPlacement plain;
    const auto passes = [&](int scheduler) {
      plain.scheduler = scheduler;
      return passes_of(step_program(placed(plain), registry_, place_.rank).program);
    };
    std::set<std::vector<std::pair<int, int>>> orders;
    if (const auto own = passes(0))
      orders.insert(*own);
    else
      return;
    for (const std::string& name : plugins.names("scheduler")) {
      choices_.schedulers.push_back(by_default("scheduler", "scheduler", name, plugins));
      bool fresh = false;
      try {
        const auto order = passes(static_cast<int>(choices_.schedulers.size()) - 1);
        fresh = order && orders.insert(*order).second;
      } catch (const UserError&) {  // a schedule that this run cannot have
      }
      if (!fresh) choices_.schedulers.pop_back();
    }
  }

  // With everything on the lowest home. The other home, above it, is in host memory: where the host computes, nothing
  // moves there, and elsewhere it is the only one. An update on the device is taken for one on the host.
  void rehearse(const stage::MakeGroups& make_groups) {
    MemoryPlacement away = lowest(choices_);
    Needed least;
    for (const int divisor : staging_divisors) {
      away.staging_divisor = divisor;
      least = needed(away);
      if (fits_given(least)) break;
    }
    away_ = away;
    if (!fits_given(least)) refuse_all(least);
    rehearsal_.emplace(placed(away), registry_, place_, make_groups);
    own_ = predict(away);
  }

  [[noreturn]] void refuse_all(const Needed& least) const {
    throw UserError(
        "offload is automatic, but even with everything on {} a step needs {} of device memory{}, and {} are allowed; "
        "raise the budget, or reduce train.micro_batch or model.seq_len",
        choices_.homes.back().slot, text::format_bytes(least.device),
        on_host_ ? " and " + text::format_bytes(least.all) + " of memory in all" : "", limits());
  }

  // By what the config itself gives, which is the same on all ranks.
  bool fits_given(const Needed& needed) const {
    return (config_.device_budget == 0 || needed.device <= config_.device_budget) &&
           (config_.memory_budget == 0 || needed.all <= config_.memory_budget);
  }
  bool fits(const Needed& needed) const { return fits_given(needed) && needed.all <= budget_.bytes; }

  std::string limits() const {
    return (config_.device_budget > 0 ? text::format_bytes(config_.device_budget) + " (device_budget) and " : "") +
           text::format_bytes(budget_.bytes) + " (" + budget_.origin + ")";
  }

  int stages() const { return static_cast<int>(config_.parallel.size(Axis::Pipeline)); }
  int first_rank_of(int stage) const { return place_.world_size / stages() * stage; }

  // Of the stages' first ranks, which hold the remainders of divisions; so all ranks choose the same.
  Needed needed(const MemoryPlacement& placement) const {
    const config::RunConfig config = placed(placement);
    Needed most{0, 0};
    for (int stage = 0; stage < stages(); ++stage) {
      const DryRun dry = dry_run(config, registry_, first_rank_of(stage));
      most = {std::max(most.device, dry.peak_total), std::max(most.all, dry.needed)};
    }
    return most;
  }

  PredictedStep predict(const MemoryPlacement& placement) const {
    const config::RunConfig config = placed(placement);
    std::vector<StepProgram> steps;
    for (int stage = 0; stage < stages(); ++stage)
      steps.push_back(step_program(config, registry_, stages() == 1 ? place_.rank : first_rank_of(stage)));
    std::vector<StageOfStep> walked;
    for (std::size_t stage = 0; stage < steps.size(); ++stage)
      walked.push_back({steps[stage].program, steps[stage].parameters, rehearsal_->stages()[stage].costs,
                        rehearsal_->stages()[stage].speed});
    return predict_step(walked);
  }

  // Of the slowest rank; what the config's plugins refuse is impossible.
  std::int64_t nanoseconds(const MemoryPlacement& placement) const {
    try {
      return static_cast<std::int64_t>(1e9 * predict(placement).seconds);
    } catch (const UserError&) {
      return impossible;
    }
  }

  std::optional<Candidate> fastest_that_fits(const std::vector<MemoryPlacement>& placements) {
    std::vector<std::int64_t> mine;
    for (const MemoryPlacement& placement : placements) mine.push_back(nanoseconds(placement));
    const std::vector<std::int64_t> times = rehearsal_->most(mine);
    std::vector<Candidate> candidates;
    for (std::size_t i = 0; i < placements.size(); ++i)
      if (times[i] != impossible) candidates.push_back({placements[i], times[i]});
    looked_at_ += candidates.size();
    if (candidates.empty()) return {};
    // Times within a hundredth are equal; then the first, with the most on the device, is chosen.
    const std::int64_t least = std::ranges::min(candidates, {}, &Candidate::nanoseconds).nanoseconds;
    const std::int64_t grain = std::max<std::int64_t>(least / 100, 1);
    std::ranges::stable_sort(candidates, {}, [&](const Candidate& one) { return one.nanoseconds / grain; });
    std::vector<MemoryPlacement> too_large;
    for (Candidate& candidate : candidates) {
      const auto larger = [&](const MemoryPlacement& one) { return takes_no_less(candidate.placement, one); };
      if (std::ranges::any_of(too_large, larger)) continue;
      const Needed here = needed(candidate.placement);
      if (!fits(here)) {
        too_large.push_back(candidate.placement);
        continue;
      }
      candidate.device_bytes = here.device;
      return candidate;
    }
    return {};
  }

  OffloadChoice concluded(const Candidate& found) {
    OffloadChoice choice;
    choice.chosen = {placed(found.placement), 1e-9 * static_cast<double>(found.nanoseconds), found.device_bytes};
    std::vector<std::string>& report = choice.report;
    const HomeSpeed& speed = rehearsal_->speed();
    report.push_back(
        text::formatted("measured with everything on %s: %.3f s per step (predicted: %.3f s), of it %.3f s of compute",
                        choices_.homes.back().slot.c_str(), rehearsal_->step_s(), own_.seconds, own_.computing));
    if (own_.moving > 0.0)
      report.push_back(text::formatted("it reads %.2f GB/s and writes %.2f GB/s; transfers take %.3f s per step",
                                       1e-9 * speed.read, 1e-9 * speed.write, own_.moving));
    report.push_back(text::formatted(
        "fastest of %zu placements within %s, found in %.1f s: %.3f s per step, %s of device memory", looked_at_,
        limits().c_str(), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(),
        choice.chosen.seconds, text::format_bytes(choice.chosen.device_bytes).c_str()));
    for (const std::string& line : as_yaml(choice.chosen.config, choices_)) report.push_back("  " + line);
    return choice;
  }

  const resolve::ResolvedRun& run_;
  const config::RunConfig& config_;
  plugins::PluginRegistry& registry_;
  stage::RankNumbers place_;
  Choices choices_;
  bool on_host_ = true;
  MemoryBudget budget_;
  MemoryPlacement away_;  // the rehearsed one
  std::optional<Rehearsal> rehearsal_;
  PredictedStep own_;
  std::size_t looked_at_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

OffloadChoice choose_offload(const resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
                             const stage::MakeGroups& make_groups) {
  return Search(run, place, local_ranks, make_groups).run();
}

std::optional<double> settle_offload(resolve::ResolvedRun& run, const stage::RankNumbers& place, int local_ranks,
                                     const stage::MakeGroups& make_groups, bool logs) {
  if (!run.config.offload.automatic) {
    check_device_budget(run.config, *run.registry);
    return {};
  }
  if (logs) spdlog::info("offload: auto: measuring a few steps");
  OffloadChoice choice = choose_offload(run, place, local_ranks, make_groups);
  if (logs)
    for (const std::string& line : choice.report) spdlog::info("offload: auto: {}", line);
  run.config = std::move(choice.chosen.config);
  return choice.chosen.seconds;
}

void check_device_budget(const config::RunConfig& config, plugins::PluginRegistry& registry) {
  if (config.device_budget == 0) return;
  const std::int64_t ranks_of_stage = config.world_size / config.parallel.size(Axis::Pipeline);
  for (std::int64_t rank = 0; rank < config.world_size; rank += ranks_of_stage) {
    const std::int64_t bytes = dry_run(config, registry, static_cast<int>(rank)).peak_total;
    if (bytes > config.device_budget)
      throw UserError(
          "device_budget is {}, and a step of rank {} needs {} of device memory; `strata plan` lists it by category. "
          "Raise device_budget, recompute activations, use more ranks, or set offload: auto",
          text::format_bytes(config.device_budget), rank, text::format_bytes(bytes));
  }
}

}  // namespace strata::plan
