// Which layers this rank computes, in which order, and which parameters are trained.
#include <strata/error.hpp>

#include <algorithm>

#include "plugins/plugin_call.hpp"
#include "step/session_contexts.hpp"

namespace strata::runtime {

namespace {

// As ranks compare it: a part for each stage, of which a long one is its beginning and a hash.
std::string text_of(const StepPlan& plan) {
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

}  // namespace

// Every rank describes every layer, builds its own, and comes to the same placement.
void Session::place_layers(const config::RunConfig& config, Scheduler& scheduler) {
  const Model& model = *plugins_.model;
  stage_.layers_in_model = plugin_call(stage_.model_name, "layers()", stage_.rank, [&] { return model.layers(); });
  std::vector<bool> recompute;
  for (int number = 0; number < stage_.layers_in_model; ++number) {
    stage_.model_layers.push_back(plugin_call(
        stage_.model_name, [&] { return format("describe({})", number); }, stage_.rank,
        [&] { return model.describe(number, batch_); }));
    recompute.push_back(config.recompute.covers(number));
  }
  stage_.statistics = StatisticNames::of(stage_.model_layers, stage_.model_name);
  attach_precision();
  std::vector<LayerTime> times = measured_;
  if (times.empty() && cuts_by_time(config.cut) && !stage_.store->dry_run())
    times = measure_layers(
        stage_.model_layers, recompute, batch_, model.vocabulary(),
        [&](int number) { return model.build(number, *linear_); }, stage_, stage_.store->device());
  if (!times.empty() && times.size() != stage_.model_layers.size())
    throw UserError("the measured times are of {} layers, and the model has {}", times.size(),
                    stage_.model_layers.size());
  const std::vector<LayerCost> costs = layer_costs(stage_.model_layers, config.cut, times);
  for (const std::int64_t layer : config.recompute.layers)
    if (layer < 0 || layer >= stage_.layers_in_model)
      throw UserError("activations.checkpoint names layer {}; this model has layers 0 to {}", layer,
                      stage_.layers_in_model - 1);
  auto chunks = static_cast<int>(config.chunks_per_stage);
  if (chunks == 0)
    chunks = plugin_call(plugins_.scheduler.name, "chunks_per_stage()", stage_.rank, [&] {
      return scheduler.chunks_per_stage(mesh_.size(Axis::Pipeline), stage_.layers_in_model);
    });
  PipelineShape shape{mesh_.size(Axis::Pipeline), chunks, static_cast<int>(config.train.accumulation)};
  shape.layers_per_chunk.assign(config.layers_per_chunk.begin(), config.layers_per_chunk.end());
  plan_ = plan_step(plugins_.scheduler.name, scheduler, shape, costs);
  stage_.groups->agree("the orders of " + plugins_.scheduler.name, text_of(plan_),
                       "place() and order() are pure functions, the same in every process: they may not depend on the "
                       "rank, the time, a counter or an address");
  stage_.placement = plan_.placement;
  stage_.updates_within_step = updates_within_step(plan_.orders);
  for (std::size_t chunk = 0; chunk < plan_.placement.layers_of_chunk.size(); ++chunk) {
    if (plan_.placement.stage_of_chunk[chunk] != stage_.stage) continue;
    const auto [begin, end] = plan_.placement.layers_of_chunk[chunk];
    for (int number = begin; number < end; ++number) {
      StageLayer& layer = stage_.layers.emplace_back();
      layer.number = number;
      layer.info = stage_.model_layers[static_cast<std::size_t>(number)];
      layer.recompute = config.recompute.covers(number);
      layer.layer = plugin_call(
          stage_.model_name, [&] { return format("build({})", number); }, stage_.rank,
          [&] { return model.build(number, *linear_); });
    }
  }
}

void Session::attach_precision() {
  PrecisionPolicy& precision = *plugins_.precision;
  plugin_call(plugins_.precision.name, "attach()", stage_.rank, [&] { precision.attach(stage_.model_layers); });
}

bool Session::splits_backward() const {
  const auto is_split = [](const ComputeAction& action) { return action.kind == ComputeKind::BackwardInput; };
  return std::any_of(plan_.orders.begin(), plan_.orders.end(),
                     [&](const auto& order) { return std::any_of(order.begin(), order.end(), is_split); });
}

void Session::set_trainable(const std::function<bool(const std::string& parameter)>& trainable) {
  stage_.first_trainable = stage_.layers_in_model;
  for (int number = stage_.layers_in_model; number-- > 0;)
    for (ParameterInfo& parameter : stage_.model_layers[static_cast<std::size_t>(number)].parameters) {
      parameter.trainable = trainable(parameter.name);
      if (parameter.trainable) stage_.first_trainable = number;
    }
  for (StageLayer& layer : stage_.layers) {
    layer.info = stage_.model_layers[static_cast<std::size_t>(layer.number)];
    for (Parameter* parameter : layer.layer->parameters()) parameter->info.trainable = trainable(parameter->info.name);
  }
}

}  // namespace strata::runtime
