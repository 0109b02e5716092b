// What the program is made from: this rank's layers and parameters, and what of them moves.
#include <algorithm>

#include "step/session.hpp"

namespace strata::runtime {

// Whether other ranks make parts of its gradient that the partitioner does not add up.
bool Session::is_replicated(const FlatParameter& flat) const {
  const bool in_parts = std::ranges::any_of(flat.info().parameters, [&](const ParameterSpan& span) {
    return span.info.sums_over_tensor(batch_.sequence_parallel);
  });
  return stage_.holders.contains(flat.info().id) || (stage_.tensor != nullptr && in_parts);
}

LayerOptions Session::layer_options() const {
  LayerOptions options;
  options.parameters.flat_parameters_of_layer.resize(static_cast<std::size_t>(stage_.layers_in_model));
  options.recompute.resize(static_cast<std::size_t>(stage_.layers_in_model));
  options.parameters.input_moves.resize(static_cast<std::size_t>(stage_.layers_in_model));
  for (const LayerInfo& layer : stage_.model_layers)
    options.parameters.backward_reads.push_back(layer.backward_reads_weights);
  for (std::size_t local = 0; local < stage_.layers.size(); ++local) {
    const auto number = static_cast<std::size_t>(stage_.layers[local].number);
    options.parameters.flat_parameters_of_layer[number] = stage_.layout.flat_of_layer[local];
    options.recompute[number] = stage_.layers[local].recompute;
    options.parameters.input_moves[number] = input_moves(stage_.layers[local].number);
  }
  for (const auto& flat : stage_.layout.flat) {
    const FlatParameterInfo& info = flat->info();
    const auto bytes = [&](Category category, bool kept = false) {
      return stage_.buffers->moving_bytes({category, info.id, kept});
    };
    // Their state's bytes: the parts but the last are of one size.
    const int parts = stage_.optimizer_state->update_parts(info.id);
    std::int64_t state = 0;
    for (int part = 0; part < parts; ++part)
      state += stage_.buffers->moving_bytes({Category::Optimizer, info.id, false, part});
    options.parameters.flat_parameters.push_back(
        FlatParameterSize{.elements = info.elements,
                          .trainable = info.trainable,
                          .deferred = info.deferred,
                          .values_leave = stage_.buffers->moves(Category::Parameter, info.id),
                          .gradient_leaves = stage_.buffers->moves(Category::Gradient, info.id),
                          .parameter_moves = bytes(Category::Parameter),
                          .gradient_moves = bytes(Category::Gradient),
                          .state_moves = state,
                          .kept_moves = bytes(Category::Gradient, true),
                          .update_parts = parts,
                          .updates_at_home = stage_.buffers->updates_on_host()});
  }
  for (const FlatParameter* const flat : flat_)
    if (flat->info().trainable && is_replicated(*flat)) options.replicated.push_back(flat->info().id);
  options.sums_of_round = sums_of_round_;
  options.policy = policy_;
  // By what is equal on the ranks of a stage: one may own nothing that moves.
  options.defers_updates =
      policy_ == config::StepPolicy::Plain && stage_.updates_within_step == 0 && !stage_.buffers->updates_on_host() &&
      std::ranges::any_of(stage_.layout.flat, [&](const auto& flat) {
        const OffloadDevice* const home = stage_.buffers->plan().home_of(Category::Optimizer, flat->info().id);
        return flat->info().trainable && home != nullptr && !home->limits().mapped;
      });
  options.updates_at_end = updates_at_end_;
  options.read_ahead = stage_.buffers->moves_in_background() ? read_ahead_ : 0;
  return options;
}

}  // namespace strata::runtime
