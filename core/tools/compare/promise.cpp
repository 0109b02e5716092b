#include "tools/compare/promise.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "config/keys.hpp"
#include "config/listing.hpp"

namespace strata::compare {

namespace {

using plugins::Equivalence;

// The keys whose values differ, those that one of the runs lacks among them.
std::set<std::string> differing_keys(const config::RunConfig& run, const config::RunConfig& baseline) {
  std::map<std::string, std::string> values;
  for (const config::Resolved& row : config::listing(baseline)) values[row.path] = config::to_text(row.value);
  std::set<std::string> keys;
  for (const config::Resolved& row : config::listing(run)) {
    const auto found = values.find(row.path);
    if (found == values.end() || found->second != config::to_text(row.value)) keys.insert(row.path);
    if (found != values.end()) values.erase(found);
  }
  for (const auto& [path, value] : values) keys.insert(path);
  return keys;
}

const config::PluginSlot* slot_of(const std::string& key) {
  const config::PluginSlot* found = nullptr;
  for (const config::PluginSlot& slot : config::plugin_slots())
    if (key.starts_with(slot.path + ".") && (found == nullptr || slot.path.size() > found->path.size())) found = &slot;
  return found;
}

// Whether a plugin of this kind decides how a training is carried out, and not which one.
bool carries_out(const std::string& kind) {
  constexpr const char* kinds[] = {"device", "communicator", "partitioner", "precision", "scheduler", "offload"};
  return std::ranges::find(kinds, kind) != std::end(kinds);
}

// Whether the key changes the order of sums and nothing else.
bool reorders(const std::string& key) {
  return key.starts_with("parallel.") || key == "train.micro_batch" || key == "train.accumulation" ||
         key == "activations.checkpoint";
}

}  // namespace

std::optional<Promise> promise(const resolve::ResolvedRun& run, const resolve::ResolvedRun& baseline, double rounding) {
  Promise found;
  std::set<std::string> slots;
  bool reordered = false;
  for (const std::string& key : differing_keys(run.config, baseline.config)) {
    const config::Affects affects = config::effect_of(key).affects;
    const config::PluginSlot* const slot = slot_of(key);
    if (slot != nullptr && carries_out(slot->kind))
      slots.insert(slot->path);
    else if (reorders(key))
      reordered = true;
    else if (affects != config::Affects::Nothing && affects != config::Affects::Files)
      return std::nullopt;
  }
  if (slots.empty()) return std::nullopt;
  if (reordered) found.bound = rounding;
  std::set<std::string> named;
  for (const resolve::ResolvedRun* const one : {&run, &baseline})
    for (const config::PluginChoice* const choice : one->config.plugins()) {
      // With sums in another order a plugin that both runs have makes other numbers too, by what it declares.
      const bool differs = slots.contains(choice->slot);
      if (!differs && !reordered) continue;
      const plugins::Manifest& manifest =
          one->registry->find(*plugin_kind_from_string(choice->kind), choice->plugin).manifest;
      const Equivalence declared = plugins::equivalence_of(manifest, choice->options);
      if (!differs && declared.kind == Equivalence::Kind::Bitwise) continue;
      if (declared.kind == Equivalence::Kind::Simulated) return std::nullopt;
      if (declared.kind == Equivalence::Kind::Reassociation) found.bound = std::max(found.bound, rounding);
      found.bound = std::max(found.bound, declared.bound);
      if (differs && declared.kind == Equivalence::Kind::Tolerance) found.of_gradients = false;
      const std::string text = plugins::full_name(manifest) + " declares " + plugins::to_string(declared);
      if (named.insert(text).second) found.text += (found.text.empty() ? "" : ", ") + text;
    }
  return found;
}

}  // namespace strata::compare
