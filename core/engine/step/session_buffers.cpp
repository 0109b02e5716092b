// Where a rank's buffers rest, and the room for those that come and leave.
#include <strata/error.hpp>

#include <algorithm>

#include "config/keys.hpp"
#include "step/session.hpp"

namespace strata::runtime {

// Whether nothing but its input is kept of the layer for its backward.
bool Session::keeps_only_input(int layer, bool recompute) const {
  return recompute && layer > 0 && layer >= stage_.first_trainable;
}

namespace {

// Throws UserError for a key that is not at its default and that only homes which state is brought from make use of.
void refuse_idle(const char* key, std::int64_t value, const std::string& home) {
  const OptionSpec& option = config::find_key(key)->option;
  if (value == std::get<std::int64_t>(parse_option(option, option.default_text))) return;
  throw UserError(
      "{} is {}, which does nothing: {} holds state where the host addresses it, and nothing is brought from there; "
      "leave {} out, or choose a home that state is brought from, such as a disk",
      key, value, home, key);
}

}  // namespace

// The ratios count whole parameters and all layers of the model: equal on the ranks that hold the same.
void Session::make_buffers(const config::RunConfig& config) {
  const config::OffloadConfig& offload = config.offload;
  if (offload.automatic)
    throw UserError(
        "offload is automatic, and its homes are chosen by measuring steps where they run: `strata train` and "
        "strata::initialize() do it, "
        "and print the keys that they chose; put them into the config for everything else");
  std::vector<std::int64_t> parameters, trained, inputs;
  for (const auto& flat : stage_.layout.flat) {
    parameters.push_back(flat->info().elements);
    trained.push_back(flat->info().trainable ? flat->info().elements : 0);
  }
  for (int layer = 0; layer < stage_.layers_in_model; ++layer)
    inputs.push_back(keeps_only_input(layer, config.recompute.covers(layer)) ? stage_.input_of(layer).bytes() : 0);
  const std::vector<bool> leaves = state::part_of(trained, offload.optimizer_ratio);
  for (std::size_t flat = 0; flat < leaves.size(); ++flat)
    if (!leaves[flat]) trained[flat] = 0;
  const state::MemoryPlan memory{
      {plugins_.parameter_offload.plugin, state::part_of(parameters, offload.parameters_ratio)},
      {plugins_.optimizer_offload.plugin, leaves},
      state::part_of(trained, offload.gradients_ratio),
      {plugins_.activation_offload.plugin, state::part_of(inputs, offload.activations_ratio)}};
  // The plugin's own word, not the store's: a dry run of a GPU's run counts what that run will take.
  const bool on_host = at::Device(plugins_.device->type()).is_cpu();
  for (const auto& [key, ratio] : {std::pair("offload.optimizer_ratio", offload.optimizer_ratio),
                                   std::pair("offload.gradients_ratio", offload.gradients_ratio)})
    if (!on_host && memory.optimizer.device != nullptr && memory.optimizer.device->limits().mapped && ratio < 1.0)
      throw UserError(
          "{} is {} and {} is not the host: its processors make either all of the update or none, by gradients that "
          "they address; set it to 1, or leave offload.optimizer out",
          key, ratio, stage_.device.name);
  const OffloadDevice* const values = memory.parameters.device;
  if (!on_host && memory.optimizer.device != nullptr && memory.optimizer.device->limits().mapped && values != nullptr &&
      !values->limits().mapped)
    throw UserError(
        "offload.optimizer is {}, so the host's processors update the parameters, and they cannot address "
        "offload.parameters, which is {}; give both the same home, or leave offload.parameters out",
        plugins_.optimizer_offload.name, plugins_.parameter_offload.name);
  // A home that was chosen for the run may be any: then the key is for the others.
  const bool given = std::ranges::find(offload.given, "offload.optimizer.plugin") != offload.given.end();
  const OffloadDevice* const home = memory.optimizer.device;
  if (given && home != nullptr && offload.updates_at_end > 0.0 && home->limits().mapped)
    throw UserError(
        "offload.updates_at_end is {} and {} holds state where it is updated in place, which is at the end of the step "
        "anyway; leave the key out, or choose a home for offload.optimizer that state is brought from, such as a disk",
        offload.updates_at_end, plugins_.optimizer_offload.name);
  stage_.buffers = std::make_unique<state::Buffers>(*stage_.store, *stage_.device, memory, on_host);
  if (given && home != nullptr && home->limits().mapped)
    refuse_idle("offload.update_elements", offload.update_elements, plugins_.optimizer_offload.name);
  const auto named = std::ranges::count_if(
      offload.given, [](const std::string& key) { return key.starts_with("offload.") && key.ends_with(".plugin"); });
  if (named > 0 && named == std::ssize(offload.homes()) && !stage_.buffers->moves_in_background())
    refuse_idle("offload.read_ahead", offload.read_ahead, "offload/" + offload.homes().front()->name);
}

// Bytes of a recomputed layer's input that leave the device.
std::int64_t Session::input_moves(int layer) const {
  constexpr Category category = Category::Activation;
  if (!keeps_only_input(layer, stage_.layer(layer).recompute) || !stage_.buffers->moves(category, layer)) return 0;
  return stage_.buffers->bytes_at_home(category, layer, stage_.input_of(layer).bytes());
}

void Session::make_input_buffers(const Program& program) {
  for (const Instruction& instruction : program) {
    if (instruction.op != Op::Forward || instruction.input_buffer < 0) continue;
    const int layer = instruction.layer, number = instruction.input_buffer;
    Buffer*& buffer = stage_.input_buffers[{layer, number}];
    if (buffer == nullptr)
      buffer = &stage_.buffers->make({Category::Activation, layer, false, number},
                                     "the input of " + stage_.layer(layer).info.name, stage_.input_of(layer).bytes(),
                                     at::kByte);
  }
}

void Session::make_room(const Program& program) {
  std::vector<state::Buffers::Movement> movements;
  for (const Instruction& instruction : program) {
    const bool leaves = instruction.op == Op::Settle || (instruction.op == Op::Store && !instruction.changed);
    if (leaves || instruction.op == Op::Fetch) movements.push_back({moved_by(instruction), !leaves});
  }
  stage_.buffers->make_room(movements);
}

}  // namespace strata::runtime
