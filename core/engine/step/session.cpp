#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <strata/error.hpp>
#include <strata/tensor_units.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include "config/conflicts.hpp"
#include "group/group_plan.hpp"
#include "plugins/plugin_call.hpp"
#include "program/passes.hpp"
#include "step/connect_stages.hpp"
#include "step/session_contexts.hpp"

namespace strata::runtime {

namespace {
TensorUnits* tensor_units(Optimizer* optimizer) {
  return dynamic_cast<TensorUnits*>(optimizer);
}

// Of a unit of a parameter, what is one of each tensor-parallel rank's part; 0: parts of some lie in several parts.
std::int64_t unit_in_part(const ParameterCut& cut, std::int64_t unit, bool of_parts) {
  if (unit == 1 || cut.keeps_together(unit)) return unit;
  const PartPlaces places = cut.places(0);  // a unit is made of whole rounds over the ranks, and there is no padding
  const bool equal = places.length * cut.parts() == places.distance && unit % places.distance == 0;
  return of_parts && equal ? unit / cut.parts() : 0;
}
}  // namespace

Session::Session(const config::RunConfig& config, PluginSet& plugins, GroupProvider& groups, const RankNumbers& place,
                 const ModelSource& source, bool dry_run, Purpose purpose, std::vector<LayerTime> measured)
    : plugins_(plugins),
      measured_(std::move(measured)),
      learning_rate_(plugins.learning_rate, config),
      mesh_(plugins.mesh()),
      place_(place_of(mesh_, place.rank)),
      policy_(purpose == Purpose::Training ? config.step_policy : config::StepPolicy::Plain),
      read_ahead_(config.offload.read_ahead),
      updates_at_end_(config.offload.updates_at_end),
      executor_(stage_) {
  const int rank = place.rank;
  stage_.rank = rank;
  stage_.stage = place_.at(Axis::Pipeline);
  stage_.device = dry_run ? NamedPlugin<Device>{&dry_device_, plugins.device.name} : plugins.device;
  stage_.partitioner = plugins.partitioner;
  stage_.precision = plugins.precision;
  stage_.optimizer = plugins.optimizer;
  stage_.model_name = plugins.model.name;
  stage_.own_exchange = &plugins.own_exchange;
  batch_ = {config.train.micro_batch, config.model.seq_len, plugins.precision->activation(), mesh_.size(Axis::Tensor),
            mesh_.size(Axis::Tensor) > 1 && config.sequence_parallel};
  stage_.sequence_parallel = batch_.sequence_parallel;
  stage_.store = std::make_unique<StateStore>(
      plugin_call(stage_.device.name, "select()", rank, [&] { return stage_.device->select(place.local_rank); }));
  stage_.slots = std::make_unique<SlotPool>(*stage_.store, *stage_.device);
  context_ = std::make_unique<Context>(*this);
  for (const auto& [slot, plugin] : plugins.all())
    plugin_call(plugin.name, "run_begins()", rank, [&, &plugin = plugin] { plugin->run_begins(*context_); });
  plugin_call(stage_.model_name, "configure()", rank, [&] {
    if (!source.config.empty()) plugins.model->configure(source.config);
    if (config.model.seq_len <= plugins.model->maximum_sequence_length()) return;
    throw UserError("model.seq_len is {}; this model takes at most {} tokens{}", config.model.seq_len,
                    plugins.model->maximum_sequence_length(),
                    source.config.empty() ? "" : ", by max_position_embeddings or n_positions of its config.json");
  });
  stage_.groups = &groups;
  stage_.world = groups_.emplace("world", groups.make(request_along(mesh_, place_, "world", axes_without({}))))
                     .first->second.get();
  if (mesh_.size(Axis::Tensor) > 1)
    stage_.tensor = groups_.emplace("tensor", groups.make(request_along(mesh_, place_, "tensor", {Axis::Tensor})))
                        .first->second.get();
  stage_.partitions_inputs = config.partitions_inputs && mesh_.size(Axis::Tensor) > 1;
  linear_ = std::make_unique<Linear>(*plugins.precision, plugins.precision.name, rank, batch_, stage_.tensor);
  stage_.linear = linear_.get();
  place_layers(config, *plugins.scheduler);
  if (source.check_layers) source.check_layers(*plugins.model, stage_.model_layers);
  connect_groups(groups);
  connect_stages(*stage_.pipeline, plan_.placement, stage_.store->device());
  groups_.at("pipeline")->reset_traffic();  // which is of steps
  if (policy_ == config::StepPolicy::Speculative && !look_ahead(plan_).any()) policy_ = config::StepPolicy::Plain;
  std::optional<ParameterRules> rules;
  if (purpose == Purpose::Evaluation) {
    set_trainable([](const std::string&) { return false; });
  } else {
    learning_rate_.check_momentum(plugins.optimizer);
    rules.emplace(config.parameters, stage_.model_layers,
                  plugin_call(stage_.model_name, "checkpoint_names()", rank, [&] {
                    return config.parameters.empty() ? CheckpointNames() : plugins.model->checkpoint_names();
                  }));
    set_trainable([&](const std::string& parameter) { return rules->of(parameter).trainable; });
    connect_sums(groups);
    check_units();
    if (TensorUnits* const units = tensor_units(stage_.optimizer.plugin);
        units != nullptr && mesh_.size(Axis::Tensor) > 1)
      plugin_call(stage_.optimizer.name, "connect_tensor()", rank, [&] { units->connect_tensor(*stage_.tensor); });
  }
  find_ties();
  std::vector<Layer*> layers;
  std::vector<int> numbers;
  for (const StageLayer& layer : stage_.layers) {
    layers.push_back(layer.layer.get());
    numbers.push_back(layer.number);
  }
  std::map<std::string, ParameterInfo> first_uses;
  for (const auto& [name, tie] : ties_) first_uses.emplace(name, tie.first_use);
  stage_.layout =
      state::lay_out(layers, numbers, *plugins.precision, stage_.store->device(), splits_backward(), first_uses,
                     place_.at(Axis::Tensor), mesh_.size(Axis::Tensor), [&](const ParameterInfo& parameter) {
                       return unit_in_part({parameter, mesh_.size(Axis::Tensor)}, unit_of(parameter), true);
                     });
  for (const auto& flat : stage_.layout.flat) flat_.push_back(flat.get());
  make_buffers(config);
  plugin_call(stage_.partitioner.name, "attach()", rank, [&] { stage_.partitioner->attach(*context_); });
  if (purpose == Purpose::Training) {
    const config::Answers answered = answers();
    config::check_conflicts({config, &answered});
    if (policy_ == config::StepPolicy::Local) train_locally(config);
  }
  const std::vector<Slice> slices =
      plugin_call(stage_.partitioner.name, "owned()", rank, [&] { return stage_.partitioner->owned(); });
  state::check_ranges(slices, stage_.partitioner.name);
  state::check_cuts(slices, stage_.optimizer.name, stage_.partitioner.name);
  stage_.scalars = {.gradient_factor = at::ones({}, stage_.scalar_options()),
                    .apply = at::zeros({}, stage_.scalar_options())};
  state::OptimizerState::WriteTrained write_trained;
  if (purpose == Purpose::Training && plugins.optimizer->trains_elsewhere())
    write_trained = [this](const Piece& piece) {
      plugin_call(
          stage_.optimizer.name, [&] { return "write_trained(" + piece.info.parameter + ")"; }, stage_.rank,
          [&] { stage_.optimizer->write_trained(piece); });
    };
  stage_.optimizer_state =
      std::make_unique<state::OptimizerState>(slices, *plugins.optimizer, *stage_.buffers, flats_of_ties(true), policy_,
                                              config.offload.update_elements, std::move(write_trained));
  if (purpose == Purpose::Training) {
    connect_own_exchange(groups);
    connect_ties(groups, slices);
  }
  for (state::OptimizerState::Entry& entry : stage_.optimizer_state->entries()) {
    if (!entry.trainable) continue;
    const ParameterSettings& settings = rules->of(entry.piece.info.parameter);
    entry.piece.learning_rate_factor = settings.learning_rate_factor;
    entry.piece.weight_decay = settings.weight_decay;
  }
  if (stage_.buffers->updates_on_host())
    stage_.host_copies = std::make_unique<state::HostCopies>(state::HostCopies::bytes_for(*stage_.optimizer_state),
                                                             *stage_.store, *stage_.device);
  if (purpose == Purpose::Training) {
    stage_.sums = std::make_unique<state::ParameterSums>(stage_.layout.flat, *plugins.optimizer, *stage_.store);
    const LayerOptions options = layer_options();
    program_ = lower_training(plan_, options, stage_.partitioner->lookahead(), stage_.stage);
    if (options.defers_updates)
      pending_updates_ = lower_pending_updates(plan_, options, stage_.partitioner->lookahead(), stage_.stage);
    make_input_buffers(program_);
    make_room(program_);
    make_room(pending_updates_);
  }
}

Session::~Session() = default;

Session::PluginsStop::~PluginsStop() {
  // Nobody waits for what an error left under way, and its memory is about to go.
  if (std::uncaught_exceptions() > 0 && session.stage_.groups != nullptr) session.stage_.groups->stop();
  // Offload devices were made before the partitioner: what it has under way ends before they take their regions back.
  session.plugins_.shutdown(session.stage_.partitioner.plugin);
  session.stage_.host_copies.reset();
  session.stage_.optimizer_state.reset();
  session.stage_.buffers.reset();
  session.plugins_.shutdown();
}

std::int64_t Session::unit_of(const ParameterInfo& parameter) const {
  if (!parameter.trainable) return 1;
  const std::int64_t unit = plugin_call(stage_.optimizer.name, "unit()", stage_.rank,
                                        [&] { return stage_.optimizer->unit(PieceInfo::whole(parameter)); });
  if (unit < 1)
    throw Bug("{} updates {} in units of {} elements; a unit has at least one", stage_.optimizer.name, parameter.name,
              unit);
  return unit;
}

// Every rank looks at the whole model, so all come to the same answer.
void Session::check_units() const {
  if (mesh_.size(Axis::Tensor) == 1) return;
  for (const LayerInfo& layer : stage_.model_layers)
    for (const ParameterInfo& parameter : layer.parameters) {
      const std::int64_t unit = unit_of(parameter);
      const bool of_parts = tensor_units(stage_.optimizer.plugin) != nullptr;
      if (unit_in_part({parameter, mesh_.size(Axis::Tensor)}, unit, of_parts) > 0) continue;
      throw UserError(
          "parallel.tensor is {}, and {} updates {} neighbouring elements of {} together, which lie in the parts of "
          "several ranks; set it to 1, or choose an optimizer that updates each element by itself",
          mesh_.size(Axis::Tensor), stage_.optimizer.name, unit, parameter.name);
    }
}

StepOutcome Session::step(const StepInput& input, const StepInput* next) {
  strata_check(!program_.empty(), "a session made for evaluation cannot train");
  compute_with(Weights::Trained);
  return executor_.run(program_, input, next);
}

void Session::make_pending_updates() {
  if (pending_updates_.empty() || !executor_.has_pending_update()) return;
  executor_.make_pending_updates(pending_updates_);
}

void Session::evaluate(const std::vector<MicroBatch>& batches, const ForwardSums& sums) {
  make_pending_updates();
  compute_with(Weights::Evaluated);
  const int micro_batches = static_cast<int>(batches.size());
  const auto [found, fresh] = evaluations_.try_emplace(micro_batches);
  if (fresh) {
    const LayerOptions layers = layer_options();
    Lookahead lookahead = stage_.partitioner->lookahead();
    // Between two micro-batches a forward program would gather the last layer and the first at once, often the two
    // largest; a training step never does, and where it fits its validation must.
    if (!program_.empty() && !lookahead.resident)
      lookahead.live_parameters = std::min(lookahead.live_parameters, peak_live_elements(program_, layers.parameters));
    found->second = lower_evaluation(plan_, layers, lookahead, stage_.stage, micro_batches);
    make_room(found->second);
  }
  StepInput input;
  input.batches = batches;
  executor_.evaluate(found->second, input, sums);
}

ForwardFigures Session::figures(const ForwardSums& sums, std::int64_t valid_tokens) {
  sums.sums.select(0, ForwardSums::valid_tokens).fill_(static_cast<double>(counted(valid_tokens)));
  stage_.world->all_reduce(sums.sums, ReduceOperation::Sum).wait();
  if (sums.maxima.numel() > 0) stage_.world->all_reduce(sums.maxima, ReduceOperation::Max).wait();
  return ForwardFigures::of({sums.sums.cpu(), sums.maxima.cpu()}, stage_.statistics);
}

}  // namespace strata::runtime
