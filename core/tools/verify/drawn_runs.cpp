#include "tools/verify/drawn_runs.hpp"

#include <strata/error.hpp>

#include <algorithm>
#include <map>

#include "tools/chosen/model_sizes.hpp"

namespace strata::verify {

namespace {

using conformance::Draws;

constexpr std::int64_t most_ranks = 8;
constexpr std::int64_t least_tokens = 64;  // of a step: the bounds of gradients.hpp are for sums over many

class Drawing {
 public:
  Drawing(const CheckedRun& small, const std::vector<std::string>& user_settings, const std::string& folder,
          Draws& draws)
      : small_(small), user_settings_(user_settings), folder_(folder), draws_(draws) {}

  DrawnRun run() {
    mesh();
    number("train.accumulation", small_.config().train.accumulation, {1, 2, 3, 4, 5, 8});
    number("train.micro_batch", small_.config().train.micro_batch, {1, 3});
    number("model.seq_len", small_.config().model.seq_len, {5, 33});
    layers();
    choose("activations.checkpoint", {"", "none", "all", "[1]"});
    for (const char* slot : {"offload.parameters", "offload.optimizer", "offload.activations"}) home(slot);
    choose("step_policy", {"", "plain", "delayed", "speculative"});
    for (const config::PluginChoice* choice : {&small_.config().partitioner, &small_.config().scheduler})
      if (!other(*choice)) options(*choice);
    options(small_.config().optimizer);
    check_it();
    return std::move(drawn_);
  }

 private:
  // The user's sizes of the model, micro-batches and places of offloaded state stay.
  void set(std::string key, const std::string& value) {
    const std::string of_model = "model." + small_.config().model.plugin.name + ".";
    const std::string without_name = key.starts_with(of_model) ? "model." + key.substr(of_model.size()) : key;
    const bool is_users = (key.starts_with("model.") || key.starts_with("offload.") || key == "train.accumulation") &&
                          std::ranges::any_of(user_settings_, [&](const std::string& one) {
                            return one.starts_with(key + "=") || one.starts_with(without_name + "=");
                          });
    if (!is_users) drawn_.changes.push_back(key + "=" + value);
  }

  void trait(const std::string& key, const std::string& value) { drawn_.traits.push_back(key + "=" + value); }

  // One of these; "" is as it is.
  std::string choose(const std::string& key, const std::vector<std::string>& values) {
    std::string value = draws_.pick(values);
    if (!value.empty()) set(key, value);
    trait(key, value);
    return value;
  }

  // Unchanged, or one of these. More than two is many.
  std::int64_t number(const std::string& key, std::int64_t own, std::vector<std::int64_t> others) {
    std::erase(others, own);
    others.insert(others.begin(), own);
    const std::int64_t value = draws_.pick(others);
    if (value != own) set(key, std::to_string(value));
    trait(key, value > 2 ? "many" : std::to_string(value));
    return value;
  }

  void mesh() {
    const config::ParallelSizes& own = small_.config().parallel;
    const std::int64_t pipeline = number("parallel.pipeline", own.size(Axis::Pipeline), {1, 2, 3});
    const std::int64_t tensor = number("parallel.tensor", own.size(Axis::Tensor), {1, 2, 3, 4});
    const std::int64_t data = draws_.pick<std::int64_t>({own.size(Axis::Data), 2, 3});  // one has nothing to partition
    trait("data", data > 2 ? "many" : std::to_string(data));
    if (tensor != own.size(Axis::Tensor))
      for (const std::string& one : small_sizes(small_, tensor))
        if (std::ranges::find(small_.run.settings, one) == small_.run.settings.end())
          set(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
    if (tensor > 1) choose("parallel.sequence", {"", "false", "true"});
    if (tensor == 1 && small_.config().sequence_parallel) set("parallel.sequence", "false");
    choose("parallel.chunks", {"", "2"});
    changes_mesh_ = data != own.size(Axis::Data);
    ranks_ = pipeline * tensor * data;
  }

  void layers() {
    const config::PluginChoice& model = small_.config().model.plugin;
    for (const OptionSpec& option : manifest(model).options)
      if (const auto size = cli::model_size(option); size && *size == cli::ModelSize::Layers)
        number("model." + model.name + "." + option.name, model.options.integer(option.name), {1, 2, 3, 5, 8});
  }

  // A device that writes files does it where the run's tokens are.
  void home(const std::string& slot) {
    std::vector<std::string> devices{"", "none"};
    for (const config::PluginChoice* own : small_.config().offload.homes())  // one that two categories share
      if (std::ranges::find(devices, own->plugin) == devices.end()) devices.push_back(own->plugin);
    for (const plugins::Manifest* plugin : usable(PluginKind::OffloadDevice)) devices.push_back(plugin->name);
    const std::string device = choose(slot + ".plugin", devices);
    if (device.empty()) return;
    if (device != "none") {
      const plugins::Manifest& found = registry().find(PluginKind::OffloadDevice, device).manifest;
      if (std::ranges::find(found.options, "path", &OptionSpec::name) != found.options.end())
        set(slot + "." + found.name + ".path", folder_);
    }
    set(slot + "_ratio", device != "none" && draws_.chance(2) ? "0.3" : "1");
  }

  // Whether another plugin takes the place of one: first what it can do by its manifest, then which. So the config's
  // own is not one of many.
  bool other(const config::PluginChoice& choice) {
    std::map<std::string, std::vector<std::string>> by_abilities;
    for (const plugins::Manifest* plugin : usable(*plugin_kind_from_string(choice.kind))) {
      if (plugin->name == choice.name) continue;
      std::string abilities;
      for (const Capability capability : plugin->capabilities) abilities += " " + std::string(to_string(capability));
      by_abilities[abilities].push_back(plugin->name);
    }
    std::vector<std::string> all{"own"};
    for (const auto& [abilities, names] : by_abilities) all.push_back(abilities);
    const std::string abilities = draws_.pick(all);
    trait(choice.slot, abilities);
    if (abilities == "own") return false;
    set(choice.slot + ".plugin", draws_.pick(by_abilities.at(abilities)));
    return true;
  }

  // None that trains in a way of its own.
  std::vector<const plugins::Manifest*> usable(PluginKind kind) const {
    std::vector<const plugins::Manifest*> plugins;
    for (const plugins::FoundPlugin* plugin : registry().list())
      if (plugin->problem.empty() && plugin->shadowed_by.empty() && plugin->manifest.kind == kind &&
          plugin->manifest.equivalence.kind != plugins::Equivalence::Kind::Simulated)
        plugins.push_back(&plugin->manifest);
    return plugins;
  }

  void options(const config::PluginChoice& choice) {
    if (!draws_.chance(2)) return;
    for (const auto& [name, text] : draws_.options(manifest(choice).options)) {
      if (!is_given(choice, name)) set(choice.slot + "." + choice.name + "." + name, text);
    }
  }

  plugins::PluginRegistry& registry() const { return *small_.resolved.registry; }
  const plugins::Manifest& manifest(const config::PluginChoice& choice) const {
    return registry().find(*plugin_kind_from_string(choice.kind), choice.plugin).manifest;
  }

  // The user asked for this value of it.
  bool is_given(const config::PluginChoice& choice, const std::string& option) const {
    return std::ranges::any_of(small_.run.settings, [&](const std::string& one) {
      return one.starts_with(choice.slot + "." + choice.name + "." + option + "=");
    });
  }

  static std::int64_t tokens_of(const CheckedRun& run) {
    return run.config().train.global_batch * run.config().model.seq_len;
  }

  void check_it() {
    if (ranks_ > most_ranks || (drawn_.changes.empty() && !changes_mesh_)) return;
    Run run = small_.run;
    run.ranks = static_cast<int>(ranks_);
    run.settings.insert(run.settings.end(), drawn_.changes.begin(), drawn_.changes.end());
    drawn_.run = try_check(std::move(run));
    try {
      if (drawn_.run) drawn_.plain = plain_run(*drawn_.run);
      if (drawn_.run && tokens_of(*drawn_.run) < least_tokens) drawn_.run.reset();
    } catch (const UserError&) {  // such as a size that one process cannot have
      drawn_.run.reset();
    }
    if (changes_mesh_) drawn_.changes.push_back(format("--nproc {}", ranks_));
  }

  const CheckedRun& small_;
  const std::vector<std::string>& user_settings_;
  const std::string& folder_;
  Draws& draws_;
  DrawnRun drawn_;
  std::int64_t ranks_ = 1;
  bool changes_mesh_ = false;
};

}  // namespace

DrawnRun drawn_run(const CheckedRun& small, const std::vector<std::string>& user_settings, const std::string& folder,
                   Draws& draws) {
  return Drawing(small, user_settings, folder, draws).run();
}

}  // namespace strata::verify
