#include "stage/homes.hpp"

#include <strata/error.hpp>

#include <algorithm>

#include "config/keys.hpp"

namespace strata::stage {

namespace {

// Returns the parts of the state that leave: by flat parameter, and by layer for inputs.
memory::MemoryPlan chosen_parts(const Setup& setup, const Layers& layers, const state::Layout& layout) {
  const config::OffloadConfig& offload = setup.config.offload;
  std::vector<std::int64_t> parameters, trained, inputs;
  for (const auto& flat : layout.flat) {
    parameters.push_back(flat->info().elements);
    trained.push_back(flat->info().trainable ? flat->info().elements : 0);
  }
  for (int layer = 0; layer < layers.in_model(); ++layer)
    inputs.push_back(
        layers.keeps_only_input(layer, setup.config.recompute.covers(layer)) ? layers.input_of(layer).bytes() : 0);
  const std::vector<bool> leaves = memory::part_of(trained, offload.optimizer_ratio);
  for (std::size_t flat = 0; flat < leaves.size(); ++flat)
    if (!leaves[flat]) trained[flat] = 0;
  return {{setup.plugins.parameter_offload.plugin, memory::part_of(parameters, offload.parameters_ratio)},
          {setup.plugins.optimizer_offload.plugin, leaves},
          memory::part_of(trained, offload.gradients_ratio),
          {setup.plugins.activation_offload.plugin, memory::part_of(inputs, offload.activations_ratio)}};
}

bool is_mapped(const OffloadDevice* home) {
  return home != nullptr && home->limits().mapped;
}

// State in mapped host memory is updated by the host's processors, which must address all that an update reads and
// writes.
void check_updates_on_host(const Setup& setup, const memory::MemoryPlan& homes) {
  const config::OffloadConfig& offload = setup.config.offload;
  for (const auto& [key, ratio] : {std::pair("offload.optimizer_ratio", offload.optimizer_ratio),
                                   std::pair("offload.gradients_ratio", offload.gradients_ratio)})
    if (ratio < 1.0)
      throw UserError(
          "{} is {}, and the device is {}: the host's processors update either all of the state or none of it, and "
          "read "
          "the gradients from host memory; set it to 1, or leave offload.optimizer out",
          key, ratio, setup.plugins.device.name);
  if (homes.parameters.device != nullptr && !is_mapped(homes.parameters.device))
    throw UserError(
        "offload.optimizer is {}, so the host's processors update the parameters, and they cannot address parameters "
        "in "
        "offload.parameters: {}; give both the same home, or leave offload.parameters out",
        setup.plugins.optimizer_offload.name, setup.plugins.parameter_offload.name);
}

// Throws UserError for a key that differs from its default and that only affects homes from which state is copied.
void refuse_idle(const char* key, std::int64_t value, const std::string& home) {
  const OptionSpec& option = config::find_key(key)->option;
  if (value == std::get<std::int64_t>(parse_option(option, option.default_text))) return;
  throw UserError(
      "{} is {}, which has no effect: the state in {} is used in place and never copied; leave {} out, or choose a "
      "home "
      "from which state is copied, such as a disk",
      key, value, home, key);
}

}  // namespace

memory::MemoryPlan plan_homes(const Setup& setup, const Layers& layers, const state::Layout& layout) {
  if (setup.config.offload.automatic)
    throw UserError(
        "offload is automatic: its homes are chosen by measuring steps, which only `strata train` and "
        "strata::initialize() do; they print the chosen keys, which you can put into the config");
  memory::MemoryPlan homes = chosen_parts(setup, layers, layout);
  const bool on_host = at::Device(setup.plugins.device->type()).is_cpu();
  if (!on_host && is_mapped(homes.optimizer.device)) check_updates_on_host(setup, homes);
  return homes;
}

void check_used(const Setup& setup, const memory::Buffers& buffers) {
  const config::OffloadConfig& offload = setup.config.offload;
  // Only homes that the config names: a key may be meant for another home than the one that was measured and chosen.
  const bool given = std::ranges::find(offload.given, "offload.optimizer.plugin") != offload.given.end();
  if (given && is_mapped(buffers.plan().optimizer.device)) {
    const std::string& home = setup.plugins.optimizer_offload.name;
    if (offload.updates_at_end > 0.0)
      throw UserError(
          "offload.updates_at_end is {}, which has no effect: the state in {} is updated in place, at the end of the "
          "step; "
          "leave the key out, or choose a home for offload.optimizer from which state is copied, such as a disk",
          offload.updates_at_end, home);
    refuse_idle("offload.update_elements", offload.update_elements, home);
  }
  const auto named = std::ranges::count_if(
      offload.given, [](const std::string& key) { return key.starts_with("offload.") && key.ends_with(".plugin"); });
  if (named > 0 && named == std::ssize(offload.homes()) && !buffers.moves_in_background())
    refuse_idle("offload.read_ahead", offload.read_ahead, "offload/" + offload.homes().front()->name);
}

}  // namespace strata::stage
