#include "plan/dry_run.hpp"

#include <ATen/ops/empty.h>
#include <strata/error.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "plan/counting_allocator.hpp"
#include "plan/model_facts.hpp"
#include "step/session.hpp"

namespace strata::plan {

namespace {

int config_ranks(const config::RunConfig& config) {
  return static_cast<int>(config.world_size);
}

// Groups of any size that move no data.
class CountingGroups final : public group::GroupProvider {
 public:
  explicit CountingGroups(int rank) : rank_(rank) {}
  std::unique_ptr<CheckedGroup> make(const group::GroupRequest& request) override {
    const auto place = std::find(request.members.begin(), request.members.end(), rank_);
    strata_check(place != request.members.end(), "a rank asked for a group it is not a member of");
    return std::make_unique<CountingGroup>(request.name, static_cast<int>(place - request.members.begin()),
                                           request.members);
  }
  // Meta tensors have no values that the host could read.
  void wait_for_device(const std::function<void()>& /*block*/) override {}

 private:
  int rank_;
};

// A rank on meta, among ranks that are not there.
struct DryRank {
  DryRank(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank, const std::string& model_config,
          stage::Purpose purpose, std::vector<stage::LayerTime> measured = {})
      : plugins(config, registry, rank, /*with_communicator=*/false),
        groups(rank),
        session(config, plugins, groups, {rank, config_ranks(config), 0}, stage::ModelSource{model_config},
                /*dry_run=*/true, purpose, std::move(measured)) {}

  stage::PluginSet plugins;
  CountingGroups groups;
  step::Session session;
};

// Elements of the whole model, a tied parameter once.
struct ModelElements {
  explicit ModelElements(const std::vector<LayerInfo>& layers) {
    std::set<std::string> ties;
    for (const LayerInfo& layer : layers)
      for (const ParameterInfo& parameter : layer.parameters)
        if (parameter.tie.empty() || ties.insert(parameter.tie).second) {
          all += parameter.elements();
          if (parameter.trainable) trainable += parameter.elements();
        }
  }
  std::int64_t all = 0;
  std::int64_t trainable = 0;
};

// A layer of several flat parameters counts as often as the one that is gathered most. Parameters that stay whole are
// gathered once, where ranks keep parts of their update. `whole`: by flat parameter, between steps.
std::vector<LayerGathers> gathers_of(const program::Program& program, const stage::Stage& stage,
                                     const std::vector<bool>& whole, bool anything_sent) {
  std::vector<int> of_flat(whole.size(), 0);
  for (const program::Instruction& instruction : program) {
    if (instruction.op != program::Op::Gather || !anything_sent) continue;
    const auto flat = static_cast<std::size_t>(instruction.flat_parameter);
    of_flat.at(flat) = whole.at(flat) ? 1 : of_flat.at(flat) + 1;
  }
  std::vector<LayerGathers> result;
  for (std::size_t local = 0; local < stage.layers.own().size(); ++local) {
    LayerGathers& layer = result.emplace_back(LayerGathers{stage.layers.own()[local].info.name, 0});
    for (const int flat : stage.values.layout().flat_of_layer[local])
      layer.gathers = std::max(layer.gathers, of_flat.at(static_cast<std::size_t>(flat)));
  }
  return result;
}

}  // namespace

std::int64_t parameters_of(const Model& model) {
  std::vector<LayerInfo> layers;
  for (int layer = 0; layer < model.layers(); ++layer) layers.push_back(model.describe(layer, {}));
  return ModelElements(layers).all;
}

std::vector<int> planned_ranks(const config::RunConfig& config) {
  const int ranks = config_ranks(config);
  std::vector<int> planned;
  const auto stages = static_cast<int>(config.parallel.size(Axis::Pipeline));
  for (int rank = 0; rank < ranks; ++rank) {
    const int in_stage = rank % (ranks / stages);
    if (ranks <= 16 || in_stage == 0 || in_stage == ranks / stages - 1) planned.push_back(rank);
  }
  return planned;
}

ModelState model_state(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank,
                       const std::string& model_config) {
  const DryRank dry_rank(config, registry, rank, model_config, stage::Purpose::Training);
  const auto held = [&](Category category) {
    const auto& tiers = dry_rank.session.store().ledger().now[static_cast<std::size_t>(category)];
    return std::accumulate(tiers.begin(), tiers.end(), std::int64_t{0});
  };
  ModelState state;
  state.parameters = ModelElements(dry_rank.session.stage().layers.model()).all;
  state.parameter_bytes = held(Category::Parameter);
  state.gradient_bytes = held(Category::Gradient) + held(Category::Bucket);
  state.optimizer_bytes = held(Category::Optimizer);
  return state;
}

config::Answers answers_of(const config::RunConfig& config, plugins::PluginRegistry& registry) {
  return DryRank(config, registry, 0, model_config(config), stage::Purpose::Training).session.answers();
}

program::StepPlan step_plan(const config::RunConfig& config, plugins::PluginRegistry& registry,
                            std::vector<stage::LayerTime> measured) {
  return DryRank(config, registry, 0, model_config(config), stage::Purpose::Training, std::move(measured))
      .session.plan();
}

StepProgram step_program(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank) {
  const DryRank dry_rank(config, registry, rank, model_config(config), stage::Purpose::Training);
  return {dry_rank.session.program(), dry_rank.session.parameter_use()};
}

void check_run(const config::RunConfig& config, plugins::PluginRegistry& registry) {
  const DryRank rank(config, registry, 0, model_config(config), stage::Purpose::Training);
}

void check_evaluation(const config::RunConfig& config, plugins::PluginRegistry& registry,
                      const std::string& model_config) {
  const DryRank rank(config, registry, 0, model_config, stage::Purpose::Evaluation);
}

DryRun dry_run(const config::RunConfig& config, plugins::PluginRegistry& registry, int rank) {
  CountingAllocator device_tensors;
  DryRank dry_rank(config, registry, rank, model_config(config), stage::Purpose::Training);
  step::Session& session = dry_rank.session;
  const bool on_host = at::Device(dry_rank.plugins.device->type()).is_cpu();

  step::StepInput input;
  input.step = config.train.steps - 1;  // with local training, all fragments are averaged after the last step
  input.seed = static_cast<std::uint64_t>(config.train.seed);
  input.clip = config.train.clip;
  const at::TensorOptions integers = at::TensorOptions().dtype(at::kLong).device(at::kMeta);
  for (std::int64_t micro_batch = 0; micro_batch < config.train.accumulation; ++micro_batch)
    input.batches.push_back({at::empty({config.train.micro_batch, config.model.seq_len}, integers),
                             at::empty({config.train.micro_batch, config.model.seq_len}, integers), 0});
  input.tokens = config.train.global_batch * config.model.seq_len;

  const auto validate = [&] {
    if (!config.validation.data.path.empty()) session.evaluate(input.batches, session.zero_sums());
  };
  DryRun result;
  std::vector<bool> whole;
  for (const auto& flat : session.stage().values.layout().flat)
    whole.push_back(flat->residence() != strata::Residence::Released);
  session.step(input);  // what only the first step does, such as making slots, is not counted
  validate();
  session.store().reset_peaks();
  device_tensors.reset_peak();
  // Most memory is needed by a step that begins without look-ahead forwards, as after an evaluation, and makes those of
  // the next one; what a step sends is counted in the one after it.
  session.step(input, &input);
  for (const auto& [name, group] : session.stage().groups.all()) group->reset_traffic();
  session.step(input, &input);
  const auto& local = session.stage().updates.local();
  for (const auto& [name, group] : session.stage().groups.all())
    (local && local->replicas == group.get() ? result.averages : result.traffic) += group->traffic();
  validate();
  result.ledger = session.store().ledger();
  result.peak_total = device_tensors.peak();
  result.program = session.program();
  result.gathers =
      gathers_of(result.program, session.stage(), whole, result.traffic.calls_of(Collective::AllGather) > 0);
  result.needed = result.peak_total;
  if (on_host) result.needed += result.ledger.total_peak[static_cast<std::size_t>(Tier::Host)];
  for (const LayerInfo& layer : session.stage().layers.model()) result.forward_flops += layer.forward_flops;
  const ModelElements elements(session.stage().layers.model());
  result.parameters = elements.all;
  result.trainable = elements.trainable;
  return result;
}

}  // namespace strata::plan
