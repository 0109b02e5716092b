#include "config/listing.hpp"

#include "config/keys.hpp"

namespace strata::config {
namespace {

// True while the model, the scheduler or the device has not decided. Keys that special code reads are listed later.
bool is_undecided(const Key& key, const OptionValue& value) {
  return !key.automatic.empty() && key.field.set != nullptr &&
         (value == OptionValue(std::int64_t{0}) || value == OptionValue(std::string()));
}

OptionValue value_of(const Key& key, const RunConfig& run) {
  if (key.option.type == "rule") return run.automatic.at(key.option.name);
  OptionValue value = key.field.get(run);
  return is_undecided(key, value) ? OptionValue(std::string("auto")) : value;
}

}  // namespace

std::vector<Resolved> listing(const RunConfig& run) {
  std::vector<Resolved> rows;
  const auto add = [&](const std::string& path, const auto& value) {
    if (const auto origin = run.origins.find(path); origin != run.origins.end())
      rows.push_back({path, value(), origin->second});
  };
  for (const Key& key : keys()) {
    const std::string& path = key.option.name;
    if (key.kind.empty()) {
      add(path, [&] { return value_of(key, run); });
      continue;
    }
    const PluginChoice* const choice = key.choice.get(run);
    add(path, [&] { return OptionValue(choice == nullptr ? std::string("none") : choice->plugin); });
    if (choice == nullptr) continue;
    for (const std::string& option : choice->options.names())
      add(choice->slot + "." + choice->name + "." + option, [&] { return choice->options.value(option); });
  }
  return rows;
}

}  // namespace strata::config
