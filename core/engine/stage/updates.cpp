#include "stage/updates.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/ranges.h>
#include <strata/error.hpp>
#include <strata/split_mix.hpp>

#include <algorithm>

#include "config/conflicts.hpp"
#include "group/group_plan.hpp"
#include "group/numbers.hpp"
#include "plugins/plugin_call.hpp"
#include "stage/answers.hpp"
#include "stage/fragments.hpp"

namespace strata::stage {

namespace {

// Returns flat parameters of ties that other stages hold too, by the tie's name, or those that an earlier stage counts.
std::vector<int> flats_of_ties(const Layers& layers, const state::Layout& layout, int stage, bool counted_elsewhere) {
  std::vector<int> found;
  for (const auto& [name, tie] : layers.ties()) {
    if (tie.stages.size() < 2 || !tie.stages.contains(stage)) continue;
    if (counted_elsewhere && *tie.stages.begin() == stage) continue;
    for (const auto& flat : layout.flat)
      if (flat->info().parameters.front().info.tie == name) found.push_back(flat->info().id);
  }
  return found;
}

}  // namespace

Updates::Updates(const Setup& setup, config::StepPolicy policy, Memory& memory, Groups& groups, Layers& layers,
                 Values& values)
    : values_(values),
      exchange_(setup.plugins.own_exchange),
      tensor_(groups.tensor()),
      sequence_parallel_(setup.place.batch.sequence_parallel),
      calls_(make_optimizer_calls(setup, groups.tensor())),
      stop_(setup, setup.plugins.partitioner.plugin) {
  if (setup.trains()) connect_sums(setup, groups, layers);
  if (policy == config::StepPolicy::Local) train_locally(setup, layers);
  const NamedPlugin<Partitioner>& partitioner = setup.plugins.partitioner;
  const std::vector<Slice> slices =
      plugins::plugin_call(partitioner.name, "owned()", setup.place.rank, [&] { return partitioner->owned(); });
  state::check_ranges(slices, partitioner.name);
  state::check_cuts(slices, setup.plugins.optimizer.name, partitioner.name);
  scalars = {.gradient_factor = at::ones({}, scalar_options()), .apply = at::zeros({}, scalar_options())};
  make_state(setup, policy, layers, slices);
  if (values.buffers().updates_on_host())
    host_copies_ =
        std::make_unique<state::HostCopies>(state::HostCopies::bytes_for(*state_), memory.store(), memory.device());
  summed_ = std::make_unique<SummedGradients>(*state_, setup.dry_run ? nullptr : host_copies_.get(), *calls_);
  if (!setup.trains()) return;
  connect_own_exchange(setup, memory, groups);
  connect_ties(setup, memory, groups, layers, slices);
  sums_ = std::make_unique<state::ParameterSums>(values.layout().flat, *setup.plugins.optimizer, memory.store());
}

// The ranks of the stage, for the sums that the optimizer asks for.
void Updates::connect_sums(const Setup& setup, Groups& groups, const Layers& layers) {
  sums_of_round_ = stage::sums_of_round(setup.plugins, setup.place, layers);
  if (std::ranges::find(sums_of_round_, true) == sums_of_round_.end()) return;
  sums_group_ = &groups.make("stage", group::request_along(setup.place.mesh, setup.place.coordinates, "stage",
                                                           axes_without({Axis::Pipeline})));
}

void Updates::make_state(const Setup& setup, config::StepPolicy policy, const Layers& layers,
                         const std::vector<Slice>& slices) {
  const NamedPlugin<Optimizer> optimizer = setup.plugins.optimizer;
  state::OptimizerState::WriteTrained write_trained;
  if (setup.trains() && optimizer->trains_elsewhere())
    write_trained = [optimizer, rank = setup.place.rank](const Piece& piece) {
      plugins::plugin_call(
          optimizer.name, [&] { return "write_trained(" + piece.info.parameter + ")"; }, rank,
          [&] { optimizer->write_trained(piece); });
    };
  state_ = std::make_unique<state::OptimizerState>(
      slices, *optimizer, values_.buffers(), flats_of_ties(layers, values_.layout(), setup.place.stage(), true), policy,
      setup.config.offload.update_elements, std::move(write_trained));
  for (state::OptimizerState::Entry& entry : state_->entries()) {
    if (!entry.trainable) continue;
    const state::ParameterSettings& settings = layers.settings(entry.piece.info.parameter);
    entry.piece.learning_rate_factor = settings.learning_rate_factor;
    entry.piece.weight_decay = settings.weight_decay;
  }
}

void Updates::connect_own_exchange(const Setup& setup, Memory& memory, Groups& groups) {
  ExchangingOptimizer* const exchanging = exchange_.optimizer();
  if (exchanging == nullptr) return;
  own_ = std::make_unique<OwnGradients>(values_.layout(), holders_, *exchanging, *calls_);
  const int ranks = setup.place.mesh.data_parallel();
  if (ranks == 1) return;
  GroupSpec all{Groups::exchange, {{}}};
  for (int rank = 0; rank < ranks; ++rank) all.members.front().push_back(rank);
  CheckedGroup& group =
      groups.make(Groups::exchange, group::data_parallel_request(setup.place.mesh, setup.place.coordinates, all));
  plugins::plugin_call(setup.plugins.optimizer.name, "connect()", setup.place.rank,
                       [&] { exchanging->connect(group, memory, own_->parameters(), exchange_.owns_all()); });
}

// Each stage that holds a tied parameter computes a gradient from its own layers and updates its own copy. The
// gradients are summed over the stages. The copies stay equal bit by bit if ranks of equal data-parallel index own the
// same slices.
void Updates::connect_ties(const Setup& setup, Memory& memory, Groups& groups, const Layers& layers,
                           const std::vector<Slice>& slices) {
  for (const int id : flats_of_ties(layers, values_.layout(), setup.place.stage(), false)) {
    const FlatParameter& flat = values_.flat(id);
    if (!flat.info().trainable) continue;
    const std::set<int>& stages = layers.ties().at(flat.info().parameters.front().info.tie).stages;
    const group::GroupRequest request =
        group::request_some(setup.place.mesh, setup.place.coordinates, fmt::format("stages{}", fmt::join(stages, "+")),
                            Axis::Pipeline, {stages.begin(), stages.end()});
    CheckedGroup& holders = groups.make(request.name, request);
    holders_[id] = &holders;
    if (setup.dry_run) continue;  // the other ranks do not exist
    std::uint64_t cuts = 0;       // depends on every border of the slices
    for (const Slice& slice : slices) {
      if (slice.flat != &flat || slice.begin == slice.end) continue;
      for (const std::int64_t border : {slice.begin, slice.end})
        cuts = (cuts + static_cast<std::uint64_t>(border) + 1) * golden_ratio;
    }
    const auto mine = static_cast<std::int64_t>(cuts);
    for (const std::int64_t other : group::gather_numbers(holders, memory.tensors(), {mine}))
      if (other != mine)
        throw Bug(
            "{} owns other slices of {} on stage {} than on another stage; slices of a tied flat parameter must depend "
            "only on its elements, formats and units",
            setup.plugins.partitioner.name, flat.info().name, setup.place.stage());
  }
}

// Made from the config and the whole model, so that all ranks refuse alike.
void Updates::train_locally(const Setup& setup, const Layers& layers) {
  const config::Answers answers = ask_features(setup.plugins, setup.place, layers, /*attached=*/true);
  config::check_conflicts({setup.config, &answers});
  const config::LocalConfig& local = setup.config.local;
  const auto refuse = [](const std::string& found, const std::string& rule, const std::string& remedy) {
    throw UserError("step_policy is local, and {}: {}; {}, or set step_policy: plain", found, rule, remedy);
  };
  if (local.momentum == 1.0)
    refuse("local.momentum is 1", "what it sums up would never fade", "set it to less, such as 0.9");
  if (local.rate == 0.0) refuse("local.rate is 0", "every average would be thrown away", "set it to more, such as 0.7");
  if (local.fragments > local.steps)
    refuse(format("local.fragments is {} and local.steps {}", local.fragments, local.steps),
           "each fragment is averaged at a step of its own", "set local.fragments to at most local.steps");
  if (local.fragments > layers.in_model())
    refuse(format("local.fragments is {} and the model has {} layers", local.fragments, layers.in_model()),
           "fragments are made of layers", "set local.fragments to at most that number");
  local_ = LocalTraining{local, setup.config.train.steps, replicas(setup.plugins, setup.place),
                         fragments_of_flats(layers.model(), values_.flat_parameters(), local.fragments)};
}

GradientPath& Updates::begin(std::int64_t updates) {
  if (exchange_.begin(updates)) return *own_;
  return *summed_;
}

Group* Updates::holders(int flat_parameter) const {
  const auto found = holders_.find(flat_parameter);
  return found == holders_.end() ? nullptr : found->second;
}

std::vector<int> Updates::replicated() const {
  std::vector<int> found;
  for (const auto& flat : values_.layout().flat) {
    const bool in_parts = tensor_ != nullptr && std::ranges::any_of(flat->info().parameters, [&](const auto& span) {
                            return span.info.sums_over_tensor(sequence_parallel_);
                          });
    if (flat->info().trainable && (in_parts || holders_.contains(flat->info().id))) found.push_back(flat->info().id);
  }
  return found;
}

at::TensorOptions Updates::scalar_options() const {
  const at::Device device = values_.buffers().updates_on_host() ? at::Device(at::kCPU) : values_.store().device();
  return at::TensorOptions().dtype(at::kFloat).device(device);
}

}  // namespace strata::stage
