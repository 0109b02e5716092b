#include "config/idle_keys.hpp"

#include <vector>

#include "config/merge_trees.hpp"

namespace strata::config {
namespace {

// Some keys, and the one whose value decides whether they do anything.
struct Idle {
  std::vector<std::string> keys;
  std::string by;
  std::string found;   // what that key is
  std::string remedy;  // what makes them do something
};

std::vector<std::string> with_if(std::vector<std::string> keys, const char* more, bool condition) {
  if (condition) keys.emplace_back(more);
  return keys;
}

bool says_no(const Node& node) {
  return node.text.empty() || node.text == "false" || node.text == "none";
}

void refuse_given(const Node& tree, const Idle& idle) {
  const Node* const by = find(tree, idle.by);
  for (const std::string& key : idle.keys) {
    const Node* const given = find(tree, key);
    if (given == nullptr || given->tree == 0 || is_auto(*given) || given->text == "none") continue;
    const int made_idle_in = by == nullptr ? 0 : by->tree;
    if (made_idle_in > given->tree || (made_idle_in == given->tree && says_no(*by))) continue;
    const bool is_home = key.starts_with("offload.") && key.ends_with(".plugin");
    const std::string name = is_home ? key.substr(0, key.rfind('.')) : key;
    throw UserError(given->place, "{} is {}, which has no effect: {}; {}, or leave {} out", name, given->text,
                    idle.found, idle.remedy, name);
  }
}

}  // namespace

void check_idle_keys(const Node& tree, const RunConfig& run) {
  const OffloadConfig& offload = run.offload;
  const std::string policy = find(tree, "step_policy")->text;
  if (run.step_policy != StepPolicy::Local)
    refuse_given(tree, {{"local.steps", "local.rate", "local.momentum", "local.fragments"},
                        "step_policy",
                        "step_policy is " + policy + ", without local steps",
                        "set step_policy: local"});
  if (run.step_policy != StepPolicy::Plain && offload.updates_at_end > 0.0)
    refuse_given(tree, {{"offload.updates_at_end"},
                        "step_policy",
                        "step_policy is " + policy + ", and only plain can defer updates to the next step",
                        "set step_policy: plain"});
  if (!run.validation.data.path.empty() && !run.validation.data.document_end)
    refuse_given(tree, {{"validation.document_end"},
                        "validation.documents",
                        "validation.documents is packed, which does not separate documents",
                        "set validation.documents: separate"});
  if (!run.data.document_end && !run.validation.data.document_end)
    refuse_given(tree, {{"data.document_end"},
                        "data.documents",
                        "data.documents is packed, which does not separate documents",
                        "set data.documents: separate"});
  if (!offload.automatic) {
    refuse_given(tree, {{"offload.host.plugin", "offload.disk.plugin"},
                        "offload.automatic",
                        "offload.automatic is false, so no tier is chosen automatically",
                        "set offload.automatic: true"});
    if (!offload.optimizer && offload.updates_at_end > 0.0)
      refuse_given(tree, {{"offload.updates_at_end"},
                          "offload.optimizer.plugin",
                          "offload.optimizer is none, so all updates are made at the end of the step",
                          "set offload.optimizer"});
    if (!offload.optimizer)
      refuse_given(tree, {{"offload.update_elements"},
                          "offload.optimizer.plugin",
                          "offload.optimizer is none, so no optimizer state is offloaded",
                          "set offload.optimizer"});
    if (offload.homes().empty())
      refuse_given(tree, {{"offload.read_ahead"},
                          "offload.automatic",
                          "nothing is offloaded",
                          "set offload.parameters, offload.optimizer or offload.activations"});
  }
  if (run.checkpoint.path.empty())
    refuse_given(tree, {with_if({"checkpoint.keep"}, "checkpoint.every", run.checkpoint.every > 0), "checkpoint.path",
                        "checkpoint.path is empty, so nothing is saved", "set checkpoint.path"});
  const Node* const reader = find(tree, "validation.plugin");  // where it is left out, it has become that of the data
  if (run.validation.data.path.empty() && reader != nullptr && reader->origin != "data.plugin")
    refuse_given(tree, {{"validation.plugin"}, "validation.path", "validation.path is empty", "set validation.path"});
  if (run.validation.data.path.empty())
    refuse_given(tree, {with_if({"validation.samples", "validation.documents", "validation.document_end"},
                                "validation.every", run.validation.every > 0),
                        "validation.path", "validation.path is empty", "set validation.path"});
}

}  // namespace strata::config
