#include "config/deepspeed.hpp"

#include <algorithm>

#include "config/deepspeed_reader.hpp"
#include "config/engine_schema.hpp"
#include "config/layers.hpp"

namespace strata::config {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The device that the defaults and the settings choose: a ds_config says nothing of it.
std::string chosen_device(const std::vector<Node>& layers, const PluginSource& plugins) {
  std::vector<Node> others{layers.front()};
  if (layers.size() > 2) others.push_back(layers[2]);
  Node tree = combine(std::move(others), plugins);
  tree.place = layers[1].place;
  settle_automatic(tree, plugins, /*on_one_host=*/false);  // the device does not depend on it
  const Node* device = find(tree, "device.plugin");
  return device == nullptr ? "" : plugin_name(*plugin_slot("device"), device->text, plugins);
}

Node taken_out(std::vector<Node>& layers, const std::string& key) {
  Node taken;
  if (layers.size() < 3) return taken;
  if (const Node* node = layers[2].get(key)) taken = *node;
  layers[2].remove(key);
  return taken;
}

}  // namespace

std::string DeepSpeedLine::one_line() const {
  const std::string what = key.empty() ? "" : ": " + key + (value.empty() ? "" : " " + value);
  return origin + what + ": " + text;
}

void say_derived(DeepSpeedReport& report, const std::vector<Resolved>& listing) {
  for (DeepSpeedLine& line : report.lines) {
    const auto found =
        std::find_if(listing.begin(), listing.end(), [&](const Resolved& one) { return one.path == line.derived; });
    if (found == listing.end()) continue;
    const bool told = found->origin.starts_with(found->value + ",");  // "1, as only one batch size is given"
    line.text = line.derived + " = " + (told ? found->origin : found->value + ": " + found->origin);
  }
}

bool is_deepspeed(const Node& config) {
  const std::vector<std::string> ours = known_children("");
  std::vector<std::string> theirs;
  bool found = false;
  for (const Entry& entry : config.entries) {
    const bool strange = !contains(ours, entry.key);
    if (strange && theirs.empty()) theirs = DeepSpeedTable::installed().children("");
    if (strange) {
      found = found || contains(theirs, entry.key);
    } else if (entry.key == "optimizer" || entry.key == "scheduler") {
      found = found || entry.value.get("type") != nullptr || entry.value.get("params") != nullptr;
    } else if (entry.key != "checkpoint") {
      return false;
    }
  }
  return found;
}

DeepSpeedReport translate_deepspeed(std::vector<Node>& layers, const PluginSource& plugins,
                                    const DeepSpeedAnswers& answers) {
  strata_check(layers.size() > 1, "a ds_config lies over the defaults");
  const Node compat = taken_out(layers, "deepspeed_compat");
  const Node allowed = taken_out(layers, "deepspeed_allow");
  const Node nothing;
  const Node& settings = layers.size() > 2 ? layers[2] : nothing;
  DeepSpeedReader reader(DeepSpeedTable::installed(), layers[1], settings, chosen_device(layers, plugins), plugins,
                         answers);
  reader.read(&compat, &allowed);
  layers[1] = std::move(reader.tree);
  std::vector<DeepSpeedLine>& lines = reader.report.lines;
  std::stable_sort(lines.begin(), lines.end(), [](const DeepSpeedLine& a, const DeepSpeedLine& b) {
    return a.number != 0 && (b.number == 0 || a.number < b.number);
  });
  return std::move(reader.report);
}

}  // namespace strata::config
