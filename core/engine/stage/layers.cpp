// Which layers this rank computes, in which order, and which parameters are trained.
#include "stage/layers.hpp"

#include <strata/error.hpp>

#include <algorithm>

#include "plugins/plugin_call.hpp"
#include "stage/connect_stages.hpp"
#include "stage/layer_costs.hpp"
#include "state/layout.hpp"

namespace strata::stage {

namespace {

// Returns the plan as ranks compare it: a part for each stage. A long one is its beginning and a hash.
std::string text_of(const program::StepPlan& plan) {
  constexpr std::size_t longest = 200;
  std::string text = "layers";
  for (std::size_t chunk = 0; chunk < plan.placement.stage_of_chunk.size(); ++chunk) {
    const auto [begin, end] = plan.placement.layers_of_chunk[chunk];
    text += format(" {}-{} on stage {}", begin, end - 1, plan.placement.stage_of_chunk[chunk]);
  }
  for (std::size_t stage = 0; stage < plan.orders.size(); ++stage) {
    std::string order;
    for (const ComputeAction& action : plan.orders[stage]) order += " " + to_string(action);
    if (order.size() > longest)
      order = format("{} ... (hash {})", order.substr(0, longest), std::hash<std::string>()(order));
    text += format("; stage {}:{}", stage, order);
  }
  return text;
}

void configure(const Setup& setup) {
  Model& model = *setup.plugins.model;
  const std::int64_t tokens = setup.config.model.seq_len;
  plugins::plugin_call(setup.plugins.model.name, "configure()", setup.place.rank, [&] {
    if (!setup.source.config.empty()) model.configure(setup.source.config);
    if (tokens <= model.maximum_sequence_length()) return;
    throw UserError(
        "model.seq_len is {}; this model takes at most {} tokens{}", tokens, model.maximum_sequence_length(),
        setup.source.config.empty() ? "" : ", by max_position_embeddings or n_positions of its config.json");
  });
}

}  // namespace

Layers::Layers(const Setup& setup, Memory& memory, Groups& groups)
    : linear_(*setup.plugins.precision, setup.plugins.precision.name, setup.place.rank, setup.place.batch,
              groups.of_layers()),
      tensor_ranks_(setup.place.tensor_ranks()),
      partitions_inputs_(setup.config.partitions_inputs && tensor_ranks_ > 1),
      stop_(setup) {
  configure(setup);
  describe(setup);
  plan_step(setup, memory, groups);
  build(setup);
  if (setup.source.check_layers) setup.source.check_layers(*setup.plugins.model, model_);
  connect_stages(groups.pipeline(), plan_.placement, memory.tensors());
  groups.pipeline().reset_traffic();  // only the traffic of steps counts
  set_trainable(setup);
  find_ties();
}

void Layers::describe(const Setup& setup) {
  const NamedPlugin<Model>& model = setup.plugins.model;
  const int layers = plugins::plugin_call(model.name, "layers()", setup.place.rank, [&] { return model->layers(); });
  for (int number = 0; number < layers; ++number)
    model_.push_back(plugins::plugin_call(
        model.name, [&] { return format("describe({})", number); }, setup.place.rank,
        [&] { return model->describe(number, setup.place.batch); }));
  statistics_ = StatisticNames::of(model_, model.name);
  PrecisionPolicy& precision = *setup.plugins.precision;
  plugins::plugin_call(setup.plugins.precision.name, "attach()", setup.place.rank, [&] { precision.attach(model_); });
}

// Every rank plans for the whole model, and all get the same plan.
void Layers::plan_step(const Setup& setup, Memory& memory, Groups& groups) {
  const config::RunConfig& config = setup.config;
  const NamedPlugin<Model>& model = setup.plugins.model;
  const NamedPlugin<Scheduler>& scheduler = setup.plugins.scheduler;
  std::vector<LayerTime> times = setup.measured;
  if (times.empty() && cuts_by_time(config.cut) && !setup.dry_run) {
    const auto build = [&](int number) { return model->build(number, linear_); };
    times = measure_layers(model_, build, setup, memory, groups.world());
  }
  if (!times.empty() && times.size() != model_.size())
    throw UserError("the measured times are of {} layers, and the model has {}", times.size(), model_.size());
  const std::vector<LayerCost> costs = layer_costs(model_, config.cut, times);
  for (const std::int64_t layer : config.recompute.layers)
    if (layer < 0 || layer >= in_model())
      throw UserError("activations.checkpoint names layer {}; this model has layers 0 to {}", layer, in_model() - 1);
  const int stages = setup.place.mesh.size(Axis::Pipeline);
  auto chunks = static_cast<int>(config.chunks_per_stage);
  if (chunks == 0)
    chunks = plugins::plugin_call(scheduler.name, "chunks_per_stage()", setup.place.rank,
                                  [&] { return scheduler->chunks_per_stage(stages, in_model()); });
  PipelineShape shape{stages, chunks, static_cast<int>(config.train.accumulation)};
  shape.layers_per_chunk.assign(config.layers_per_chunk.begin(), config.layers_per_chunk.end());
  plan_ = program::plan_step(scheduler.name, *scheduler, shape, costs);
  groups.provider().agree(
      "the orders of " + scheduler.name, text_of(plan_),
      "place() and order() are pure functions, the same in every process: they may not depend on the rank, the time, a "
      "counter or an address");
  updates_within_step_ = program::updates_within_step(plan_.orders);
}

void Layers::build(const Setup& setup) {
  const NamedPlugin<Model>& model = setup.plugins.model;
  for (std::size_t chunk = 0; chunk < plan_.placement.layers_of_chunk.size(); ++chunk) {
    if (plan_.placement.stage_of_chunk[chunk] != setup.place.stage()) continue;
    const auto [begin, end] = plan_.placement.layers_of_chunk[chunk];
    for (int number = begin; number < end; ++number) {
      StageLayer& layer = own_.emplace_back();
      layer.number = number;
      layer.recompute = setup.config.recompute.covers(number);
      layer.layer = plugins::plugin_call(
          model.name, [&] { return format("build({})", number); }, setup.place.rank,
          [&] { return model->build(number, linear_); });
    }
  }
}

void Layers::set_trainable(const Setup& setup) {
  const config::RunConfig& config = setup.config;
  const NamedPlugin<Model>& model = setup.plugins.model;
  if (setup.trains())
    rules_.emplace(config.parameters, model_,
                   plugins::plugin_call(model.name, "checkpoint_names()", setup.place.rank, [&] {
                     return config.parameters.empty() ? CheckpointNames() : model->checkpoint_names();
                   }));
  const auto trains = [&](const std::string& parameter) { return rules_ && rules_->of(parameter).trainable; };
  first_trainable_ = in_model();
  for (int number = in_model(); number-- > 0;)
    for (ParameterInfo& parameter : model_[static_cast<std::size_t>(number)].parameters) {
      parameter.trainable = trains(parameter.name);
      if (parameter.trainable) first_trainable_ = number;
    }
  for (StageLayer& layer : own_) {
    layer.info = model_[static_cast<std::size_t>(layer.number)];
    for (Parameter* parameter : layer.layer->parameters()) parameter->info.trainable = trains(parameter->info.name);
  }
}

// Every rank searches the whole model, and all get the same list.
void Layers::find_ties() {
  for (std::size_t chunk = 0; chunk < plan_.placement.layers_of_chunk.size(); ++chunk) {
    const auto [begin, end] = plan_.placement.layers_of_chunk[chunk];
    for (int number = begin; number < end; ++number)
      for (const ParameterInfo& parameter : model_[static_cast<std::size_t>(number)].parameters) {
        if (parameter.tie.empty()) continue;
        Tie& tie = ties_.try_emplace(parameter.tie, Tie{parameter, {}, {}}).first->second;
        state::check_tie(tie.first_use, parameter);
        tie.stages.insert(plan_.placement.stage_of_chunk[chunk]);
        tie.chunks.insert(static_cast<int>(chunk));
      }
  }
}

const StageLayer& Layers::of(int number) const {
  for (const StageLayer& one : own_)
    if (one.number == number) return one;
  throw Bug("layer {} is not on this stage", number);
}

bool Layers::splits_backward() const {
  const auto is_split = [](const ComputeAction& action) { return action.kind == ComputeKind::BackwardInput; };
  return std::ranges::any_of(plan_.orders, [&](const auto& order) { return std::ranges::any_of(order, is_split); });
}

InputBytes Layers::input_of(int layer) const {
  return InputBytes(partitions_inputs_ ? shapes_of_parts(input_shapes(layer), tensor_ranks_) : input_shapes(layer));
}

}  // namespace strata::stage
