#include "stage/programs.hpp"

#include <algorithm>

namespace strata::stage {

namespace {

// Returns the bytes of a recomputed layer's input that leave the device.
std::int64_t input_moves(const Layers& layers, const memory::Buffers& buffers, const StageLayer& layer) {
  constexpr Category category = Category::Activation;
  if (!layers.keeps_only_input(layer.number, layer.recompute) || !buffers.moves(category, layer.number)) return 0;
  return buffers.bytes_at_home(category, layer.number, layers.input_of(layer.number).bytes());
}

program::FlatParameterSize size_of(const FlatParameterInfo& info, const memory::Buffers& buffers, int update_parts) {
  const auto bytes = [&](Category category, bool kept = false) {
    return buffers.moving_bytes({category, info.id, kept});
  };
  std::int64_t state = 0;
  for (int part = 0; part < update_parts; ++part)
    state += buffers.moving_bytes({Category::Optimizer, info.id, false, part});
  return {.elements = info.elements,
          .trainable = info.trainable,
          .deferred = info.deferred,
          .values_leave = buffers.moves(Category::Parameter, info.id),
          .gradient_leaves = buffers.moves(Category::Gradient, info.id),
          .parameter_moves = bytes(Category::Parameter),
          .gradient_moves = bytes(Category::Gradient),
          .state_moves = state,
          .kept_moves = bytes(Category::Gradient, true),
          .update_parts = update_parts,
          .updates_at_home = buffers.updates_on_host()};
}

// True if updates stand in the next step, because their state is brought. Depends on what is equal on the ranks of a
// stage: one may own nothing that moves.
bool defers_updates(const Layers& layers, const Values& values) {
  const memory::Buffers& buffers = values.buffers();
  return layers.updates_within_step() == 0 && !buffers.updates_on_host() &&
         std::ranges::any_of(values.layout().flat, [&](const auto& flat) {
           const OffloadDevice* const home = buffers.plan().home_of(Category::Optimizer, flat->info().id);
           return flat->info().trainable && home != nullptr && !home->limits().mapped;
         });
}

program::LayerOptions options_of(const Setup& setup, config::StepPolicy policy, const Layers& layers,
                                 const Values& values, const Updates& updates) {
  const memory::Buffers& buffers = values.buffers();
  const auto all = static_cast<std::size_t>(layers.in_model());
  program::LayerOptions options;
  options.parameters.flat_parameters_of_layer.resize(all);
  options.recompute.resize(all);
  options.parameters.input_moves.resize(all);
  for (const LayerInfo& layer : layers.model())
    options.parameters.backward_reads.push_back(layer.backward_reads_weights);
  for (std::size_t local = 0; local < layers.own().size(); ++local) {
    const StageLayer& layer = layers.own()[local];
    const auto number = static_cast<std::size_t>(layer.number);
    options.parameters.flat_parameters_of_layer[number] = values.layout().flat_of_layer[local];
    options.recompute[number] = layer.recompute;
    options.parameters.input_moves[number] = input_moves(layers, buffers, layer);
  }
  for (const auto& flat : values.layout().flat)
    options.parameters.flat_parameters.push_back(
        size_of(flat->info(), buffers, updates.state().update_parts(flat->info().id)));
  options.replicated = updates.replicated();
  options.sums_of_round = updates.sums_of_round();
  options.policy = policy;
  options.defers_updates = policy == config::StepPolicy::Plain && defers_updates(layers, values);
  options.updates_at_end = setup.config.offload.updates_at_end;
  options.read_ahead = buffers.moves_in_background() ? setup.config.offload.read_ahead : 0;
  return options;
}

}  // namespace

Programs::Programs(const Setup& setup, config::StepPolicy policy, const Layers& layers, Values& values,
                   const Updates& updates)
    : buffers_(values.buffers()),
      plan_(layers.plan()),
      stage_(setup.place.stage()),
      lookahead_(setup.plugins.partitioner->lookahead()),
      options_(options_of(setup, policy, layers, values, updates)) {
  if (!setup.trains()) return;
  training_ = program::lower_training(plan_, options_, lookahead_, stage_);
  if (options_.defers_updates) pending_updates_ = program::lower_pending_updates(plan_, options_, lookahead_, stage_);
  make_input_buffers(layers);
  make_room(training_);
  make_room(pending_updates_);
}

const program::Program& Programs::evaluation(int micro_batches) {
  const auto [found, fresh] = evaluations_.try_emplace(micro_batches);
  if (!fresh) return found->second;
  Lookahead lookahead = lookahead_;
  // Between two micro-batches a program of forwards would gather the last layer and the first at once, often the two
  // largest. A training step never does, and its validation must fit where the training fits.
  if (!training_.empty() && !lookahead.resident)
    lookahead.live_parameters =
        std::min(lookahead.live_parameters, program::peak_live_elements(training_, options_.parameters));
  found->second = program::lower_evaluation(plan_, options_, lookahead, stage_, micro_batches);
  make_room(found->second);
  return found->second;
}

void Programs::make_input_buffers(const Layers& layers) {
  for (const program::Instruction& instruction : training_) {
    if (instruction.op != program::Op::Forward || instruction.input_buffer < 0) continue;
    const int layer = instruction.layer, number = instruction.input_buffer;
    Buffer*& buffer = input_buffers_[{layer, number}];
    if (buffer == nullptr)
      buffer = &buffers_.make({Category::Activation, layer, false, number},
                              "the input of " + layers.of(layer).info.name, layers.input_of(layer).bytes(), at::kByte);
  }
}

void Programs::make_room(const program::Program& program) {
  std::vector<memory::Buffers::Movement> movements;
  for (const program::Instruction& instruction : program) {
    const bool leaves =
        instruction.op == program::Op::Settle || (instruction.op == program::Op::Store && !instruction.changed);
    if (leaves || instruction.op == program::Op::Fetch) movements.push_back({program::moved_by(instruction), !leaves});
  }
  buffers_.make_room(movements);
}

}  // namespace strata::stage
