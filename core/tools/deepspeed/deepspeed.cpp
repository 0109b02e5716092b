#include "tools/deepspeed/deepspeed.hpp"

#include <strata/deepspeed.hpp>

#include <algorithm>
#include <mutex>

#include "config/keys.hpp"
<<<<<<< HEAD
#include "config/merge_trees.hpp"
#include "tools/deepspeed/deepspeed_reader.hpp"
=======
#include "tools/deepspeed/deepspeed_table.hpp"
>>>>>>> h_deepspeed

namespace strata::config {

<<<<<<< HEAD
bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The device that the defaults and the settings choose: a ds_config says nothing of it.
std::string chosen_device(const std::vector<Node>& trees, const PluginSource& plugins) {
  std::vector<Node> others{trees.front()};
  if (trees.size() > 2) others.push_back(trees[2]);
  Node tree = combine(std::move(others), plugins);
  tree.place = trees[1].place;
  settle_automatic(tree, plugins, /*on_one_host=*/false);  // the device does not depend on it
  const Node* device = find(tree, "device.plugin");
  return device == nullptr ? "" : plugin_name(*plugin_slot("device"), device->text, plugins);
}

Node taken_out(std::vector<Node>& trees, const std::string& key) {
  Node taken;
  if (trees.size() < 3) return taken;
  if (const Node* node = trees[2].get(key)) taken = *node;
  trees[2].remove(key);
  return taken;
}

class DeepSpeed final : public Dialect {
 public:
  bool recognises(const Node& config) const override { return is_deepspeed(config); }
  Translation translate(std::vector<Node>& trees, const PluginSource& plugins,
                        const DialectAnswers& answers) const override {
    return translate_deepspeed(trees, plugins, answers);
  }
};

}  // namespace

bool is_deepspeed(const Node& config) {
=======
bool DeepSpeed::recognises(const Node& config) const {
  const auto contains = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
>>>>>>> h_deepspeed
  const std::vector<std::string> ours = known_children("");
  bool found = false;
  for (const Entry& entry : config.entries) {
    if (!contains(ours, entry.key)) {
      found = found || contains(deepspeed_children(""), entry.key);
    } else if (entry.key == "optimizer" || entry.key == "scheduler") {
      found = found || entry.value.get("type") != nullptr || entry.value.get("params") != nullptr;
    } else if (entry.key != "checkpoint") {
      return false;
    }
  }
  return found;
}

<<<<<<< HEAD
Translation translate_deepspeed(std::vector<Node>& trees, const PluginSource& plugins, const DialectAnswers& answers) {
  strata_check(trees.size() > 1, "a ds_config lies over the defaults");
  const Node compat = taken_out(trees, "deepspeed_compat");
  const Node allowed = taken_out(trees, "deepspeed_allow");
  const Node nothing;
  const Node& settings = trees.size() > 2 ? trees[2] : nothing;
  DeepSpeedReader reader(trees[1], settings, chosen_device(trees, plugins), plugins, answers);
  reader.read(compat, allowed);
  trees[1] = std::move(reader.tree);
  std::vector<DialectLine>& lines = reader.report.lines;
  std::stable_sort(lines.begin(), lines.end(), [](const DialectLine& a, const DialectLine& b) {
    return a.number != 0 && (b.number == 0 || a.number < b.number);
  });
  return std::move(reader.report);
}

=======
>>>>>>> h_deepspeed
}  // namespace strata::config

void strata::accept_deepspeed_configs() {
  static std::once_flag once;
  std::call_once(once, [] { config::add_dialect(std::make_unique<config::DeepSpeed>()); });
}
