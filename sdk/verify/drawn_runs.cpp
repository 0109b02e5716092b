#include "verify/drawn_runs.hpp"

#include <strata/error.hpp>

#include <algorithm>

#include "programs/model_sizes.hpp"

namespace strata::verify {

namespace {

using conformance::Draws;

constexpr std::int64_t most_ranks = 8;
constexpr std::int64_t least_tokens = 64;  // of a step: the bounds of gradients.hpp are for sums over many

class Drawing {
 public:
  Drawing(const CheckedRun& small, const std::vector<std::string>& user_settings, Draws& draws)
      : small_(small), user_settings_(user_settings), draws_(draws) {}

  DrawnRun run() {
    mesh();
    number("train.accumulation", small_.config().train.accumulation, {1, 2, 3, 4, 5, 7, 8, 12, 16});
    number("train.micro_batch", small_.config().train.micro_batch, {1, 3});
    number("model.seq_len", small_.config().model.seq_len, {5, 16, 33});
    layers();
    recomputation();
    for (const char* slot : {"offload.parameters", "offload.optimizer", "offload.activations"}) home(slot);
    const std::string policy = draws_.chance(2) ? draws_.pick<std::string>({"plain", "delayed", "speculative"}) : "";
    if (!policy.empty()) set("step_policy", policy);
    for (const config::PluginChoice* choice : {&small_.config().partitioner, &small_.config().scheduler})
      other(*choice);
    for (const config::PluginChoice* choice :
         {&small_.config().partitioner, &small_.config().scheduler, &small_.config().optimizer})
      options(*choice);
    drawn_.steps = draws_.pick<std::int64_t>({2, 3, 5});
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

  // As it is, or one of these.
  void number(const std::string& key, std::int64_t own, std::vector<std::int64_t> others) {
    others.insert(others.begin(), own);
    const std::int64_t value = draws_.pick(others);
    if (value != own) set(key, std::to_string(value));
  }

  void mesh() {
    const config::ParallelSizes& own = small_.config().parallel;
    const auto size = [&](std::int64_t now) { return draws_.chance(2) ? draws_.between(1, 4) : now; };
    const std::int64_t pipeline = size(own.pipeline), tensor = size(own.tensor), data = size(own.data);
    if (pipeline != own.pipeline) set("parallel.pipeline", std::to_string(pipeline));
    if (tensor != own.tensor) {
      set("parallel.tensor", std::to_string(tensor));
      for (const std::string& one : small_sizes(small_, tensor))
        if (std::ranges::find(small_.run.settings, one) == small_.run.settings.end())
          set(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
    }
    if (small_.config().sequence_parallel && tensor == 1) set("parallel.sequence", "false");
    if (!small_.config().sequence_parallel && tensor > 1 && draws_.chance(2)) set("parallel.sequence", "true");
    if (draws_.chance(8)) set("parallel.chunks", "2");
    changes_mesh_ = data != own.data;
    ranks_ = pipeline * tensor * data;
  }

  void layers() {
    const config::PluginChoice& model = small_.config().model.plugin;
    for (const OptionSpec& option : small_.resolved.registry->find(PluginKind::Model, model.plugin).manifest.options)
      if (const auto size = cli::model_size(option); size && *size == cli::ModelSize::Layers)
        number("model." + model.name + "." + option.name, model.options.integer(option.name), {1, 2, 3, 5, 8});
  }

  void recomputation() {
    if (draws_.chance(3)) set("activations.checkpoint", draws_.pick<std::string>({"none", "all", "[1]"}));
  }

  void home(const std::string& slot) {
    if (!draws_.chance(4)) return;
    const bool away = draws_.chance(2);
    std::vector<std::string> devices{"cpu"};
    for (const config::PluginChoice* own : small_.config().offload.homes())  // one that two categories share
      if (std::ranges::find(devices, own->plugin) == devices.end()) devices.push_back(own->plugin);
    set(slot + ".plugin", away ? draws_.pick(devices) : "none");
    set(slot + "_ratio", away && draws_.chance(2) ? "0.3" : "1");
  }

  // Another plugin in the place of one; none that trains in a way of its own.
  void other(const config::PluginChoice& choice) {
    if (!draws_.chance(3)) return;
    std::vector<std::string> names{choice.name};
    for (const plugin_host::FoundPlugin* plugin : small_.resolved.registry->list()) {
      const plugin_host::Manifest& manifest = plugin->manifest;
      const bool is_one = plugin->problem.empty() && plugin->shadowed_by.empty() &&
                          manifest.kind == *plugin_kind_from_string(choice.kind) && manifest.name != choice.name;
      if (is_one && manifest.equivalence.kind != plugin_host::Equivalence::Kind::Simulated)
        names.push_back(manifest.name);
    }
    const std::string name = draws_.pick(names);
    if (name != choice.name) set(choice.slot + ".plugin", name);
  }

  void options(const config::PluginChoice& choice) {
    const PluginKind kind = *plugin_kind_from_string(choice.kind);
    if (!draws_.chance(2)) return;
    for (const auto& [name, text] :
         draws_.options(small_.resolved.registry->find(kind, choice.plugin).manifest.options))
      if (!is_given(choice, name)) set(choice.slot + "." + choice.name + "." + name, text);
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
      if (drawn_.run) plain_run(*drawn_.run);
      if (drawn_.run && tokens_of(*drawn_.run) < least_tokens) drawn_.run.reset();
    } catch (const UserError&) {  // such as a size that one process cannot have
      drawn_.run.reset();
    }
    if (changes_mesh_) drawn_.changes.push_back("--nproc " + std::to_string(ranks_));
  }

  const CheckedRun& small_;
  const std::vector<std::string>& user_settings_;
  Draws& draws_;
  DrawnRun drawn_;
  std::int64_t ranks_ = 1;
  bool changes_mesh_ = false;
};

}  // namespace

DrawnRun drawn_run(const CheckedRun& small, const std::vector<std::string>& user_settings, Draws& draws) {
  return Drawing(small, user_settings, draws).run();
}

}  // namespace strata::verify
