#pragma once
#include <fstream>
#include <map>
#include <string>

#include "config/plugin_source.hpp"
#include "error_of.hpp"
#include "temporary_folder.hpp"
#include "text/nearest.hpp"

namespace strata::config {

inline OptionSpec option(std::string name, std::string type, std::string default_text) {
  OptionSpec spec;
  spec.name = std::move(name);
  spec.type = std::move(type);
  spec.default_text = std::move(default_text);
  return spec;
}

// The plugins that the ready configs name, with the options those use, and a few for the tests' own needs.
class FakePlugins : public PluginSource {
 public:
  FakePlugins() {
    OptionSpec preset = option("preset", "text", "pythia-14m");
    preset.choices = {"pythia-14m", "pythia-70m", "pythia-160m"};
    OptionSpec llama_preset = option("preset", "text", "llama-160m");
    llama_preset.choices = {"llama-160m", "llama-2-13b"};
    OptionSpec weight_decay = option("weight_decay", "number", "0.01");
    weight_decay.minimum = "0";
    OptionSpec token_type = option("token_type", "choice", "u16");
    token_type.choices = {"u16", "u32"};
    schemas_ = {{"device/cpu", {}},
                {"data/nanogpt", {token_type}},
                {"data/llm_c", {}},
                {"data/megatron", {}},
                {"device/cuda", {}},
                {"communicator/gloo", {option("interface", "text", "")}},
                {"communicator/nccl", {}},
                {"communicator/shm", {}},
                {"model/gpt_neox", {preset}},
                {"model/llama", {llama_preset}},
                {"partitioner/ddp", {}},
                {"partitioner/zero3", {option("prefetch_layers", "integer", "1"), option("bucket", "size", "16MiB")}},
                {"precision/fp32", {}},
                {"precision/bf16", {}},
                {"scheduler/sequential", {}},
                {"scheduler/1f1b", {}},
                {"scheduler/l2l", {}},
                {"optimizer/adamw",
                 {option("betas", "numbers", "[0.9, 0.999]"), option("epsilon", "number", "1e-8"), weight_decay}},
                {"optimizer/sgd", {option("momentum", "number", "0"), weight_decay}},
                {"optimizer/greedy", {option("plugin", "integer", "1")}},
                {"learning_rate/constant", {}},
                {"learning_rate/cosine", {option("final_ratio", "number", "0")}},
                {"learning_rate/wsd", {option("final_ratio", "number", "0"), option("decay_steps", "integer", "0")}},
                {"offload/cpu", {option("pinned", "boolean", "true")}},
                {"offload/nvme", {option("path", "text", "")}}};
  }

  std::optional<PluginSchema> find(const std::string& kind, const std::string& plugin) const override {
    const std::string name = plugin.starts_with("/") ? std::filesystem::path(plugin).stem().string() : plugin;
    if (name == "damaged") throw UserError(Place{plugin}, "not an ELF file");
    if (name == "outside" && plugin != name) return PluginSchema{name, {option("depth", "integer", "1")}, {}};
    const auto found = schemas_.find(kind + "/" + name);
    if (found == schemas_.end()) return {};
    PluginSchema schema{name, found->second, {}};
    if (name == "shm") schema.capabilities = {Capability::OneHost};
    if (name == "megatron") schema.capabilities = {Capability::OwnOrder};
    if (name == "zero3") schema.capabilities = {Capability::ReleasesParameters};
    if (kind == "model") schema.capabilities = {Capability::TensorParallel, Capability::SplittableBackward};
    return schema;
  }
  std::vector<std::string> names(const std::string& kind) const override {
    std::vector<std::string> names;
    for (const auto& [key, options] : schemas_) {
      if (key.starts_with(kind + "/")) names.push_back(key.substr(kind.size() + 1));
    }
    return names;
  }
  std::string obstacle(const std::string&, const std::string& plugin) const override {
    return plugin == "cuda" ? gpu_obstacle : "";
  }
  std::string missing(const std::string& kind, const std::string& plugin) const override {
    return "no " + kind + " plugin " + shown(plugin) + "; " + text::suggestion(plugin, names(kind));
  }

  void remove(const std::string& plugin) { schemas_.erase(plugin); }

  std::string gpu_obstacle = "no driver";

 private:
  std::map<std::string, std::vector<OptionSpec>> schemas_;
};

// In a folder that is gone with the process; its path.
inline std::string write_file(const std::string& name, const std::string& text) {
  static const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / name;
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

}  // namespace strata::config
